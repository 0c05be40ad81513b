#include <amalgam/core/status.hpp>
#include <amalgam/tasks/and_gate.hpp>

namespace amalgam::detail {

void refuse_surplus_value() {
    throw error(errc::invalid,
                "this and_gate already has all its values: create it for as many as will be set, "
                "or reset() it once all waiters have read them");
}

}  // namespace amalgam::detail
