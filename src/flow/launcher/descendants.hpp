#pragma once

#include <chrono>

namespace amalgam::detail {

/// Makes this process the parent of every orphaned descendant, so that kill_descendants() finds
/// them.
/// Failure: throws error{unsupported}.
void adopt_orphans();

/// Kills every child of this process, and their children as they are adopted, until none is left or
/// `limit` has passed (a process stuck in the kernel cannot be killed). Reaps them all. Returns
/// how many were killed.
std::size_t kill_descendants(std::chrono::milliseconds limit) noexcept;

}  // namespace amalgam::detail
