#pragma once

#include <string>

#include <amalgam/fabric/transport.hpp>

namespace amalgam::testing_support {

/// Why a port cannot be opened there; "opened" when it can.
inline std::string refusal(const std::string& where) {
    auto opened = transport_registry::installed().open(where);
    return opened ? "opened" : opened.sentence();
}

}  // namespace amalgam::testing_support
