#pragma once

namespace amalgam::detail {

/// A child of fork() has come back from a function of the user's that a thread of the library's
/// called in its parent: it must not go on in the parent's place. Says so on standard error, and
/// ends the process by _exit(1).
[[noreturn]] void end_returned_child() noexcept;

}  // namespace amalgam::detail
