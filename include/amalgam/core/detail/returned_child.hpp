#pragma once

namespace amalgam::detail {

/// Terminates a fork() child that returned from a user's function called by a library thread: the
/// child must not continue in its parent's place. Reports it on standard error and calls _exit(1).
[[noreturn]] void end_returned_child() noexcept;

}  // namespace amalgam::detail
