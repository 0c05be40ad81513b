#pragma once

#include <cstddef>

#include <amalgam/flow/launcher.hpp>

namespace amalgam::detail {

/// Local stand-in for a process on a host. Starts ssh, prints the process's output as its own,
/// relays its control line to `control` and signals to it, and ends as it ends. If this process
/// ends in any way, ssh ends, and with it the remote process and all it started.
///
/// Precondition: a single-threaded process, forked for this alone.
[[noreturn]] void stand_for_remote(const launch_options& options, std::size_t group,
                                   std::size_t replica, int control) noexcept;

}  // namespace amalgam::detail
