#pragma once

namespace amalgam::detail {

/// Protects the program's signal handlers while a library runs that installs its own, as libraries
/// of network cards do on loading. The destructor restores the program's handlers. A handler that
/// another thread set meanwhile stays if it belongs to the program or to the object that holds this
/// code; a SIG_IGN or SIG_DFL is undone.
///
/// Threads: any, several at once. Signal handlers are per process.
/// Cost:    about 128 system calls.
class kept_signals {
public:
    kept_signals() noexcept;
    ~kept_signals();
    kept_signals(const kept_signals&) = delete;
    kept_signals& operator=(const kept_signals&) = delete;
};

}  // namespace amalgam::detail
