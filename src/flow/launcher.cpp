#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/uri.hpp>
#include <amalgam/flow/launcher.hpp>

#include "flow/descendants.hpp"
#include "flow/launcher_supervisor.hpp"

namespace amalgam {
namespace {

void check(const launch_options& options) {
    std::vector<std::string> names;
    for (const group_config& group : options.config.groups)
        names.push_back(group.name);
    for (const std::string& shown : options.view)
        if (options.config.find(shown) == nullptr)
            throw error(errc::invalid, fmt::format("--view names the group \"{}\", which the "
                                                   "config has not, expected some of: {}",
                                                   shown, fmt::join(names, ", ")));
    for (const group_config& group : options.config.groups)
        for (const std::string& endpoint : group.endpoints)
            if (uri::parse(endpoint).scheme == "loop")
                throw error(errc::invalid,
                            fmt::format("groups.{}.endpoint is \"{}\", which stays inside one "
                                        "process, expected one that reaches others; "
                                        "example: \"shm://\"",
                                        group.name, endpoint));
    if (options.command.empty())
        throw error(errc::invalid,
                    "there is no program to run, expected one after --; "
                    "example: amalgam run -c config.json -- ./wordcount text.txt");
}

sigset_t block_signals() {
    sigset_t set;
    sigemptyset(&set);
    for (int one : {SIGINT, SIGTERM, SIGHUP, SIGCHLD})
        sigaddset(&set, one);
    ::sigprocmask(SIG_BLOCK, &set, nullptr);
    return set;
}

/// The supervisor's process. Its own process group keeps a terminal's Ctrl-C from it: it hears
/// of that from us, once.
[[noreturn]] void supervise(const launch_options& options, const std::string& program,
                            unique_fd launcher) noexcept {
    try {
        ::setpgid(0, 0);
        ::signal(SIGPIPE, SIG_IGN);
        ::signal(SIGTTOU, SIG_IGN);  // Else a terminal with "tostop" would stop it.
        detail::adopt_orphans();
        ::_exit(detail::supervisor(options, program, std::move(launcher)).run());
    } catch (const std::exception& wrong) {
        std::fprintf(stderr, "amalgam run: %s\n", wrong.what());
        ::_exit(1);
    }
}

/// Passes signals on to the supervisor until it has ended; the second one ends it the hard way.
int wait_for_supervisor(pid_t supervisor, const sigset_t& signals) {
    int asked_to_end = 0;
    for (;;) {
        int signal = ::sigwaitinfo(&signals, nullptr);
        if (signal < 0) continue;
        if (signal != SIGCHLD) {
            ::kill(supervisor, asked_to_end++ == 0 ? signal : SIGKILL);
            continue;
        }
        int status = 0;
        if (::waitpid(supervisor, &status, WNOHANG) != supervisor) continue;
        if (WIFEXITED(status)) return WEXITSTATUS(status);
        // What it had started is ours now, but for what died with it.
        detail::kill_descendants(std::chrono::seconds(10));
        std::fprintf(stderr, "amalgam run: %s; stopped all groups\n",
                     asked_to_end > 1 ? "asked to end twice"
                                      : "the process that supervised the groups was killed");
        return 128 + WTERMSIG(status);
    }
}

}  // namespace

int launch(const launch_options& options) {
    check(options);
    const std::string program = detail::find_program(options.command.front()).value();

    // The kernel closes our end however we end: that is how the supervisor learns of it.
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
        throw error(status{errc::no_memory, errno}, "the system gives no pipe to the launcher");
    unique_fd theirs(ends[0]);
    unique_fd ours(ends[1]);

    sigset_t signals = block_signals();
    detail::adopt_orphans();
    std::fflush(nullptr);
    pid_t supervisor = ::fork();
    if (supervisor < 0)
        throw error(status{errc::no_memory, errno}, "the system gives no process to the launcher");
    if (supervisor == 0) {
        ours.reset();
        supervise(options, program, std::move(theirs));
    }
    theirs.reset();
    return wait_for_supervisor(supervisor, signals);
}

}  // namespace amalgam
