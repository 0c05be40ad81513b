#pragma once

#include <memory>

#include <amalgam/fabric/transport.hpp>

namespace amalgam::detail {

/// Ports at loop://NAME that reach each other within this process, over the one network that
/// belongs to the returned transport. Time is the machine's; each port may have its own thread.
std::unique_ptr<transport> make_loop_transport();

}  // namespace amalgam::detail
