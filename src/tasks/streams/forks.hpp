#pragma once

namespace amalgam::detail {

/// Handling of fork() children. The only thread of the child is a plain thread, whatever it was
/// before, and the parent's streams run nothing there. Process-wide locks are held across the fork,
/// so that the child finds the data they guard consistent.
///
/// A process-wide lock of this layer is either the only one held, or taken in the order of
/// forks.cpp.
void watch_forks();  ///< Called for the first stream. Failure: throws std::bad_alloc.

}  // namespace amalgam::detail
