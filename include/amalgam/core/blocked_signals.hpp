#pragma once

#include <csignal>
#include <initializer_list>

namespace amalgam::detail {

/// While it lives, threads started by this thread have the program's signals blocked, so that only
/// the program's own threads take them. Not blocked: signals raised by a thread's own instructions
/// or calls; SIGPROF, of which each thread gets its share; and the real-time signals, which request
/// stack traces.
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
