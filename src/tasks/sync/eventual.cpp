#include <amalgam/core/status.hpp>
#include <amalgam/tasks/eventual.hpp>

namespace amalgam::detail {

void refuse_second_value() {
    throw error(errc::invalid,
                "this eventual has its value already: set it once, or reset() it when everybody "
                "has read it");
}

}  // namespace amalgam::detail
