#include "flow/launcher/guarded.hpp"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <utility>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/status.hpp>

#include "flow/launcher/descendants.hpp"

namespace amalgam::detail {
namespace {

sigset_t block_signals() {
    sigset_t set;
    sigemptyset(&set);
    for (int one : {SIGINT, SIGTERM, SIGHUP, SIGCHLD})
        sigaddset(&set, one);
    ::sigprocmask(SIG_BLOCK, &set, nullptr);
    return set;
}

/// Its own process group, so that it does not get a terminal's Ctrl-C twice: we forward it.
[[noreturn]] void run_inner(const std::function<int(unique_fd)>& body, unique_fd guard) noexcept {
    try {
        ::setpgid(0, 0);
        ::signal(SIGPIPE, SIG_IGN);
        ::signal(SIGTTOU, SIG_IGN);  // Otherwise a terminal with "tostop" would stop it.
        adopt_orphans();
        ::_exit(body(std::move(guard)));
    } catch (const std::exception& wrong) {
        std::fprintf(stderr, "amalgam run: %s\n", wrong.what());
        ::_exit(1);
    }
}

/// Forwards signals to the inner process until it has ended; the second one kills it.
int wait_for(pid_t inner, const sigset_t& signals) {
    int asked_to_end = 0;
    for (;;) {
        int signal = ::sigwaitinfo(&signals, nullptr);
        if (signal < 0) continue;
        if (signal != SIGCHLD) {
            ::kill(inner, asked_to_end++ == 0 ? signal : SIGKILL);
            continue;
        }
        int status = 0;
        if (::waitpid(inner, &status, WNOHANG) != inner) continue;
        if (WIFEXITED(status)) return WEXITSTATUS(status);
        // Its surviving descendants are our children now.
        kill_descendants(std::chrono::seconds(10));
        std::fprintf(stderr, "amalgam run: %s; stopped all groups\n",
                     asked_to_end > 1 ? "received a second signal to end"
                                      : "the process that supervised the groups was killed");
        return 128 + WTERMSIG(status);
    }
}

}  // namespace

int run_guarded(const std::function<int(unique_fd guard)>& body) {
    // The kernel closes our end however we end, which tells the inner process.
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
        throw error(status{errc::no_memory, errno}, "cannot create a pipe for the launcher");
    unique_fd theirs(ends[0]);
    unique_fd ours(ends[1]);

    sigset_t signals = block_signals();
    adopt_orphans();
    std::fflush(nullptr);
    pid_t inner = ::fork();
    if (inner < 0)
        throw error(status{errc::no_memory, errno}, "cannot create a process for the launcher");
    if (inner == 0) {
        ours.reset();
        run_inner(body, std::move(theirs));
    }
    theirs.reset();
    return wait_for(inner, signals);
}

}  // namespace amalgam::detail
