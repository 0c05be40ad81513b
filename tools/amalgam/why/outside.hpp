#pragma once

#include <string>

namespace amalgam::tool {

/// What this host shows of the process at a loopback address of tcp, where its engine does not
/// answer: that it is stopped, or which of its threads run. A sentence with what to do;
/// empty: nothing is known, as of other hosts, transports and users.
std::string seen_from_outside(const std::string& address);

}  // namespace amalgam::tool
