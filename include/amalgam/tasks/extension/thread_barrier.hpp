#pragma once

namespace amalgam::detail {

/// Executes a full memory barrier on every thread of the process before it returns. The rare side
/// of an algorithm pays, so that the frequent side gets by with plain loads and stores.
///
/// Failure: false if membarrier(2) is unavailable.
/// Cost:    a system call, and an interrupt to each core that runs another thread of the process.
bool barrier_on_all_threads() noexcept;

}  // namespace amalgam::detail
