#pragma once

#include <cstddef>

#include <amalgam/flow/launcher.hpp>

namespace amalgam::detail {

/// Stands for a process on a host, in a process of the launcher's own: starts ssh, shows what the
/// process prints as its own output, passes its control line on to `control`, and signals to it,
/// and ends as it ends. Whatever ends this one ends ssh, and so the process and all that it
/// started.
///
/// Precondition: a process of one thread, forked for this alone.
[[noreturn]] void stand_for_remote(const launch_options& options, std::size_t group,
                                   std::size_t replica, int control) noexcept;

}  // namespace amalgam::detail
