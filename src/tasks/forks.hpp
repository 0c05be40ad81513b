#pragma once

#include <mutex>

namespace amalgam::detail {

/// Children of fork(): the one thread that is there is a plain thread, whatever it was before, and
/// the streams of the parent run nothing. The locks that all threads share are held across the
/// fork, so that the child finds what they guard whole.
///
/// Each process-wide lock of this layer is taken in the order of forks.cpp, or is the only one.
void watch_forks();  ///< From the first stream on. Failure: throws std::bad_alloc.

/// Of the lists of pools that streams serve: only for their changes, as only the child of a fork
/// reads them from elsewhere.
std::mutex& lock_of_served() noexcept;

}  // namespace amalgam::detail
