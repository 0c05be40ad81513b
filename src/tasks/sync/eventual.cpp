#include <amalgam/core/status.hpp>
#include <amalgam/tasks/eventual.hpp>

namespace amalgam::detail {

void refuse_second_value() {
    throw error(errc::invalid,
                "this eventual already has its value: set it once, or reset() it once all waiters "
                "have read it");
}

}  // namespace amalgam::detail
