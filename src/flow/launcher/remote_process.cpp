#include "flow/launcher/remote_process.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/unique_fd.hpp>

#include "flow/launcher/control.hpp"
#include "flow/launcher/process.hpp"
#include "flow/launcher/remote_frames.hpp"

namespace amalgam::detail {
namespace {

constexpr int cannot_reach = 255;  // As ssh itself.

/// Quoted for the host's shell, whichever that is.
std::string quoted(const std::string& word) {
    std::string text = "'";
    for (char c : word)
        text += c == '\'' ? "'\\''" : std::string(1, c);
    return text + "'";
}

class remote_process {
public:
    remote_process(const launch_options& options, std::size_t group, std::size_t replica,
                   int control)
        : options_(options),
          about_(options.config.groups[group]),
          replica_(replica),
          host_(about_.host(replica)),
          control_(control) {
        sigset_t set;
        sigemptyset(&set);
        for (int one : {SIGINT, SIGTERM, SIGHUP})
            sigaddset(&set, one);
        ::sigprocmask(SIG_BLOCK, &set, nullptr);
        signals_.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
        ::signal(SIGPIPE, SIG_IGN);
    }

    /// Returns the process's waitpid() status.
    int run() {
        start_ssh();
        add_frame(to_agent_, remote_frame_kind::start,
                  encode({.folder = std::filesystem::current_path().string(),
                          .config = to_json(options_.config),
                          .group = about_.name,
                          .replica = replica_,
                          .silence_ms = static_cast<std::size_t>(options_.host_silence.count()),
                          .command = options_.command,
                          .environment = carried_environment(environ)}));
        last_heard_ = last_said_ = std::chrono::steady_clock::now();
        while (!ended_) {
            wait();
            take_frames();
        }
        // Its work is done, or lost.
        if (ssh_ > 0) {
            ::kill(ssh_, SIGKILL);
            ::waitpid(ssh_, nullptr, 0);
        }
        while (!out_.empty() || !err_.empty()) {
            pollfd watched[2] = {{out_.empty() ? -1 : out_.fd(), POLLOUT, 0},
                                 {err_.empty() ? -1 : err_.fd(), POLLOUT, 0}};
            ::poll(watched, 2, -1);
            if (watched[0].revents != 0) out_.write_some();
            if (watched[1].revents != 0) err_.write_some();
        }
        return wait_status_;
    }

private:
    void start_ssh() {
        std::vector<std::string> words = options_.ssh;
        words.push_back(host_);
        words.push_back(quoted(options_.remote_amalgam) + " run --agent");
        const std::string file = find_program(words.front()).value();

        int down[2], up[2];
        if (::pipe2(down, O_CLOEXEC) != 0 || ::pipe2(up, O_CLOEXEC) != 0)
            throw std::runtime_error("cannot create a pipe for ssh");
        unique_fd in_there(down[0]), out_there(up[1]);
        to_ssh_.reset(down[1]);
        from_ssh_.reset(up[0]);
        to_agent_ = output_queue(down[1]);

        const pid_t self = ::getpid();
        ssh_ = ::fork();
        if (ssh_ < 0) throw std::runtime_error("cannot create a process for ssh");
        if (ssh_ > 0) return;
        // Its own session: signals for this process do not reach ssh, and without a terminal it
        // cannot prompt for a password.
        ::setsid();
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != self) ::_exit(127);
        sigset_t none;
        sigemptyset(&none);
        ::sigprocmask(SIG_SETMASK, &none, nullptr);
        ::signal(SIGPIPE, SIG_DFL);
        ::dup2(in_there.get(), STDIN_FILENO);
        ::dup2(out_there.get(), STDOUT_FILENO);
        ::fcntl(control_, F_SETFD, FD_CLOEXEC);
        std::vector<char*> arguments;
        for (std::string& one : words)
            arguments.push_back(one.data());
        arguments.push_back(nullptr);
        ::execv(file.c_str(), arguments.data());
        ::_exit(126);
    }

    void wait() {
        // If the output is not taken, stop reading.
        const bool hears = !out_.full() && !err_.full();
        pollfd watched[] = {{signals_.get(), POLLIN, 0},
                            {hears ? from_ssh_.get() : -1, POLLIN, 0},
                            {to_agent_.full() ? -1 : control_, POLLIN, 0},
                            {to_agent_.empty() ? -1 : to_agent_.fd(), POLLOUT, 0},
                            {out_.empty() ? -1 : out_.fd(), POLLOUT, 0},
                            {err_.empty() ? -1 : err_.fd(), POLLOUT, 0}};
        const auto turn = options_.host_silence / 4;
        ::poll(watched, std::size(watched), static_cast<int>(turn.count()));

        signalfd_siginfo info;
        while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
            const char number = static_cast<char>(info.ssi_signo);
            say(remote_frame_kind::signal, {&number, 1});
        }
        if (watched[2].revents != 0) read_control();
        if (std::chrono::steady_clock::now() - last_said_ >= turn)
            say(remote_frame_kind::alive, "");
        if (watched[3].revents != 0) to_agent_.write_some();
        if (watched[4].revents != 0) out_.write_some();
        if (watched[5].revents != 0) err_.write_some();
        if (watched[1].revents != 0)
            read_frames();
        else if (!hears || !frames_.greeted())  // ssh decides how long a login may take.
            last_heard_ = std::chrono::steady_clock::now();
        else if (std::chrono::steady_clock::now() - last_heard_ > options_.host_silence)
            fail(cannot_reach,
                 fmt::format("{} was silent for {} s", host_,
                             std::chrono::duration<double>(options_.host_silence).count()));
    }

    void read_control() {
        char piece[4096];
        const ssize_t got = ::recv(control_, piece, sizeof piece, MSG_DONTWAIT);
        if (got > 0) say(remote_frame_kind::control, {piece, static_cast<std::size_t>(got)});
        if (got == 0) ::_exit(1);  // The launcher is gone.
    }

    void read_frames() {
        char piece[16384];
        const ssize_t got = ::read(from_ssh_.get(), piece, sizeof piece);
        if (got < 0 && errno == EINTR) return;
        if (got <= 0) return explain_the_loss();
        last_heard_ = std::chrono::steady_clock::now();
        frames_.feed({piece, static_cast<std::size_t>(got)});
    }

    void take_frames() {
        while (auto next = frames_.next()) {
            switch (next->kind) {
                case remote_frame_kind::control:
                    (void)::send(control_, next->bytes.data(), next->bytes.size(), MSG_NOSIGNAL);
                    break;
                case remote_frame_kind::out:
                    out_.add(next->bytes);
                    break;
                case remote_frame_kind::err:
                    err_.add(next->bytes);
                    break;
                case remote_frame_kind::refused:
                    fail(126, next->bytes);
                    break;
                case remote_frame_kind::ended:
                    ended_ = true;
                    wait_status_ = std::atoi(next->bytes.c_str());
                    break;
                default:
                    break;
            }
        }
        if (frames_.nonsense() && !ended_)
            fail(cannot_reach,
                 fmt::format("{} sent data that does not come from an amalgam agent", host_));
    }

    void explain_the_loss() {
        int status = 0;
        ::waitpid(std::exchange(ssh_, -1), &status, 0);
        const int code = exit_code_of(status);
        const std::string way = options_.ssh.front();
        if (frames_.greeted())
            return fail(cannot_reach, fmt::format("lost the connection to {}: {} ended with {}",
                                                  host_, way, describe_end(status)));
        if (code == 126 || code == 127)
            return fail(
                code,
                fmt::format("there is no program \"{0}\" on {1}, expected amalgam to be installed "
                            "there; example: --remote-amalgam /usr/local/bin/amalgam",
                            options_.remote_amalgam, host_));
        fail(cannot_reach, fmt::format("{2} cannot reach {1}, expected a login without a password "
                                       "and the same version of amalgam; try: {0} {1} true",
                                       fmt::join(options_.ssh, " "), host_, way));
    }

    void say(remote_frame_kind kind, std::string_view bytes) {
        add_frame(to_agent_, kind, bytes);
        last_said_ = std::chrono::steady_clock::now();
    }

    /// Ends with `exit_code`, and reports this sentence.
    void fail(int exit_code, const std::string& sentence) {
        if (std::exchange(ended_, true)) return;
        control_message failed;
        failed.what = control_message::kind::failed;
        failed.sentence = sentence;
        control_line(control_).send(failed);
        wait_status_ = W_EXITCODE(exit_code, 0);
    }

    const launch_options& options_;
    const group_config& about_;
    std::size_t replica_;
    std::string host_;
    int control_;
    unique_fd signals_, to_ssh_, from_ssh_;
    pid_t ssh_ = -1;
    output_queue to_agent_{-1};
    output_queue out_{STDOUT_FILENO}, err_{STDERR_FILENO};
    remote_frame_reader frames_{remote_greeting};
    std::chrono::steady_clock::time_point last_heard_{}, last_said_{};
    bool ended_ = false;
    int wait_status_ = 0;
};

}  // namespace

void stand_for_remote(const launch_options& options, std::size_t group, std::size_t replica,
                      int control) noexcept {
    // Close the launcher's ends of other processes' lines: they would hide its end from those.
    ::dup2(control, 3);
    ::syscall(SYS_close_range, 4u, ~0u, 0u);
    int status = W_EXITCODE(1, 0);
    try {
        status = remote_process(options, group, replica, 3).run();
    } catch (const std::exception& wrong) {
        fmt::print(stderr, "amalgam run: {}\n", wrong.what());
    }
    if (!WIFSIGNALED(status)) ::_exit(WEXITSTATUS(status));
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    sigset_t all;
    sigfillset(&all);
    ::signal(WTERMSIG(status), SIG_DFL);
    ::raise(WTERMSIG(status));
    ::sigprocmask(SIG_UNBLOCK, &all, nullptr);
    ::_exit(128 + WTERMSIG(status));
}

}  // namespace amalgam::detail
