#include <csignal>
#include <thread>

#include <gtest/gtest.h>
#include <pthread.h>

#include <amalgam/core/blocked_signals.hpp>

namespace amalgam::detail {
namespace {

sigset_t mask_of_this_thread() {
    sigset_t blocked;
    ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    return blocked;
}

TEST(blocked_signals, threads_started_meanwhile_leave_the_programs_signals_to_it) {
    const sigset_t before = mask_of_this_thread();
    sigset_t theirs;
    {
        const blocked_signals not_ours;
        std::thread([&] { theirs = mask_of_this_thread(); }).join();
    }
    for (const int each :
         {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD, SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH})
        EXPECT_EQ(sigismember(&theirs, each), 1) << each;
    for (const int each : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPIPE,
                           SIGXFSZ, SIGPROF, SIGRTMIN, SIGRTMAX - 2, SIGRTMAX})
        EXPECT_EQ(sigismember(&theirs, each), 0) << each;
    const sigset_t after = mask_of_this_thread();
    for (int each = 1; each < NSIG; ++each)
        EXPECT_EQ(sigismember(&after, each), sigismember(&before, each)) << each;
}

TEST(blocked_signals, what_the_thread_itself_had_blocked_stays_blocked) {
    sigset_t own;
    sigemptyset(&own);
    sigaddset(&own, SIGRTMIN);
    std::thread([&] {
        ::pthread_sigmask(SIG_SETMASK, &own, nullptr);
        sigset_t theirs;
        {
            const blocked_signals not_ours;
            std::thread([&] { theirs = mask_of_this_thread(); }).join();
        }
        EXPECT_EQ(sigismember(&theirs, SIGRTMIN), 1);
        const sigset_t after = mask_of_this_thread();
        EXPECT_EQ(sigismember(&after, SIGRTMIN), 1);
        EXPECT_EQ(sigismember(&after, SIGTERM), 0);
    }).join();
}

}  // namespace
}  // namespace amalgam::detail
