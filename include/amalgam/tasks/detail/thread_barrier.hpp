#pragma once

namespace amalgam::detail {

/// Every thread of the process has passed a full barrier when this returns: who does something
/// seldom pays for those who do its counterpart often, with plain loads and stores.
///
/// Failure: false where membarrier(2) is not to be had.
/// Cost:    a system call, and an interrupt to each core that runs another thread of the process.
bool barrier_on_all_threads() noexcept;

}  // namespace amalgam::detail
