#pragma once

#include <memory>

#include <amalgam/fabric/transport.hpp>

namespace amalgam::detail {

/// Ports at loop://NAME within this process, connected by the one network that belongs to the
/// returned transport. Uses real time; each port may have its own thread.
std::unique_ptr<transport> make_loop_transport();

}  // namespace amalgam::detail
