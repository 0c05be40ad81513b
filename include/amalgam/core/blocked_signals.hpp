#pragma once

#include <csignal>
#include <initializer_list>

namespace amalgam::detail {

/// While one lives, threads that this thread starts have the program's signals blocked: those are
/// for its own threads to take. Signals that an instruction or call of the thread itself raises
/// stay as they are, as do SIGPROF, of which each thread has its share, and the real-time ones, by
/// which stack traces are asked for.
///
/// Threads: one, on its own stack.
class blocked_signals {
public:
    blocked_signals() noexcept {
        sigset_t all;
        sigfillset(&all);
        for (const int own :
             {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPIPE, SIGXFSZ, SIGPROF})
            sigdelset(&all, own);
        for (int each = SIGRTMIN; each <= SIGRTMAX; ++each)
            sigdelset(&all, each);
        ::pthread_sigmask(SIG_BLOCK, &all, &before_);
    }
    ~blocked_signals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    blocked_signals(const blocked_signals&) = delete;
    blocked_signals& operator=(const blocked_signals&) = delete;

private:
    sigset_t before_;
};

}  // namespace amalgam::detail
