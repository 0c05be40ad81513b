#include <amalgam/core/status.hpp>
#include <amalgam/tasks/and_gate.hpp>

namespace amalgam::detail {

void refuse_surplus_value() {
    throw error(errc::invalid,
                "this and_gate has all its values already: make it for as many as will be set, or "
                "reset() it when everybody has read them");
}

}  // namespace amalgam::detail
