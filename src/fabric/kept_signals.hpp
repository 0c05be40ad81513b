#pragma once

namespace amalgam::detail {

/// While one lives, a library may run that takes signals for itself, as those of network cards do
/// when they are loaded; in the end the program's handlers are put back. A handler of the program
/// itself, or of the object that holds this code, that another thread has set meanwhile stays; a
/// SIG_IGN or SIG_DFL is taken back.
///
/// Threads: any, several at once. Signal handlers are the process's.
/// Cost:    some 128 system calls.
class kept_signals {
public:
    kept_signals() noexcept;
    ~kept_signals();
    kept_signals(const kept_signals&) = delete;
    kept_signals& operator=(const kept_signals&) = delete;
};

}  // namespace amalgam::detail
