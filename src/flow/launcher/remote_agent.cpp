// The remote end of a run over ssh: one process per agent.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/flow/launcher.hpp>

#include "flow/launcher/descendants.hpp"
#include "flow/launcher/guarded.hpp"
#include "flow/launcher/process.hpp"
#include "flow/launcher/remote_frames.hpp"
#include "flow/limits.hpp"

namespace amalgam {
namespace {

using namespace detail;

/// Moves both ends of ssh's connection away, so that no process we start inherits them.
unique_fd take_over(int standard) {
    unique_fd own(::fcntl(standard, F_DUPFD_CLOEXEC, 3));
    unique_fd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
    ::dup2(nothing.get(), standard);
    return own;
}

class agent {
public:
    explicit agent(unique_fd guard) : guard_(std::move(guard)) {
        sigset_t set;
        sigemptyset(&set);
        for (int one : {SIGCHLD, SIGINT, SIGTERM, SIGHUP})
            sigaddset(&set, one);
        signals_.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
        ::fcntl(to_launcher_.fd(), F_SETFL, O_NONBLOCK);
    }

    int run() {
        to_launcher_.add(remote_greeting);
        while (!over_) {
            wait();
            take_frames();
            for (auto [from, kind] : sources())
                pass_on(*from, kind);
            reap();
        }
        kill_descendants(limits::kill_limit);
        if (process_ && !process_->running) tell_the_end();
        return code_;
    }

private:
    /// The process's output descriptors and their frame kinds; empty before it runs.
    std::vector<std::pair<unique_fd*, remote_frame_kind>> sources() {
        if (!process_) return {};
        return {{&process_->control, remote_frame_kind::control},
                {&process_->out, remote_frame_kind::out},
                {&process_->err, remote_frame_kind::err}};
    }

    void wait() {
        std::vector<pollfd> watched{{from_launcher_.get(), POLLIN, 0},
                                    {guard_.get(), POLLIN, 0},
                                    {signals_.get(), POLLIN, 0}};
        if (!to_launcher_.empty()) watched.push_back({to_launcher_.fd(), POLLOUT, 0});
        for (auto [from, kind] : sources())
            if (*from && !to_launcher_.full()) watched.push_back({from->get(), POLLIN, 0});
        const int ready = ::poll(watched.data(), watched.size(), turn());
        if (watched[1].revents != 0) end(128 + SIGKILL);
        signalfd_siginfo info;
        while (::read(signals_.get(), &info, sizeof info) == sizeof info)
            if (info.ssi_signo != SIGCHLD) end(128 + static_cast<int>(info.ssi_signo));
        if (!to_launcher_.empty() && ready > 0 && watched[3].revents != 0)
            to_launcher_.write_some();
        if (process_ && std::chrono::steady_clock::now() - last_said_ >= silence_ / 4)
            say(remote_frame_kind::alive, "");
        if (watched[0].revents != 0) {
            read_frames();
        } else if (launcher_is_silent()) {
            end(1);
        }
    }

    /// Timeout of poll().
    int turn() const { return process_ ? static_cast<int>(silence_.count() / 4) : -1; }
    bool launcher_is_silent() const {
        return process_ && std::chrono::steady_clock::now() - last_heard_ > silence_;
    }

    void read_frames() {
        char piece[16384];
        const ssize_t got = ::read(from_launcher_.get(), piece, sizeof piece);
        if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
        if (got <= 0) {
            launcher_left_ = true;
            return end(1);
        }
        last_heard_ = std::chrono::steady_clock::now();
        frames_.feed({piece, static_cast<std::size_t>(got)});
    }

    void take_frames() {
        while (auto next = frames_.next()) {
            switch (next->kind) {
                case remote_frame_kind::start:
                    start(next->bytes);
                    break;
                case remote_frame_kind::control:
                    if (process_ && process_->control)
                        (void)::send(process_->control.get(), next->bytes.data(),
                                     next->bytes.size(), MSG_NOSIGNAL);
                    break;
                case remote_frame_kind::signal:
                    if (process_ && process_->running && !next->bytes.empty())
                        ::kill(-process_->pid, next->bytes.front());
                    break;
                default:
                    break;
            }
        }
        if (frames_.nonsense()) end(1);
    }

    void start(const std::string& bytes) {
        try {
            auto asked = decode_remote_start(bytes);
            if (!asked || process_)
                throw std::runtime_error("the launcher sent an unknown request");
            if (::chdir(asked->folder.c_str()) != 0)
                throw std::runtime_error(
                    fmt::format("there is no folder \"{}\" ({}), expected the folder that amalgam "
                                "run was started in to exist on every host",
                                asked->folder, std::strerror(errno)));
            for (const std::string& one : asked->environment) {
                const std::size_t equals = std::min(one.find('='), one.size() - 1);
                ::setenv(one.substr(0, equals).c_str(), one.c_str() + equals + 1, 1);
            }
            options_.config = parse_flow_config(asked->config).value();
            options_.command = std::move(asked->command);
            std::size_t group = 0;
            while (options_.config.groups.at(group).name != asked->group)
                ++group;
            options_.config.groups[group].hosts.clear();  // It runs here.
            silence_ = std::chrono::milliseconds(asked->silence_ms);
            last_heard_ = last_said_ = std::chrono::steady_clock::now();
            process_ = start_process(options_, group, asked->replica,
                                     find_program(options_.command.at(0)).value(), true);
        } catch (const std::exception& wrong) {
            say(remote_frame_kind::refused, wrong.what());
            flush();
            end(1);
        }
    }

    void pass_on(unique_fd& from, remote_frame_kind kind) {
        char piece[16384];
        while (from && !to_launcher_.full()) {
            const ssize_t got = kind == remote_frame_kind::control
                                    ? ::recv(from.get(), piece, sizeof piece, MSG_DONTWAIT)
                                    : ::read(from.get(), piece, sizeof piece);
            if (got > 0) {
                say(kind, {piece, static_cast<std::size_t>(got)});
            } else if (got < 0 && errno == EINTR) {
                continue;
            } else if (got < 0 && errno == EAGAIN) {
                return;
            } else {
                from.reset();
            }
        }
    }

    void reap() {
        for (;;) {
            int status = 0;
            const pid_t ended = ::waitpid(-1, &status, WNOHANG);
            if (ended <= 0) return;
            if (!process_ || ended != process_->pid) continue;  // An adopted orphan.
            process_->running = false;
            process_->wait_status = status;
            end(0);
        }
    }

    /// Sends all remaining output first.
    void tell_the_end() {
        for (auto [from, kind] : sources())
            do {
                flush();
                pass_on(*from, kind);
            } while (to_launcher_.full());
        say(remote_frame_kind::ended, std::to_string(process_->wait_status));
        flush();
    }

    void say(remote_frame_kind kind, std::string_view bytes) {
        add_frame(to_launcher_, kind, bytes);
        last_said_ = std::chrono::steady_clock::now();
    }

    /// Waits for room; if the launcher is gone, the rest is dropped.
    void flush() {
        bool gone = false;
        while (!to_launcher_.empty() && !gone) {
            pollfd watched[3] = {{to_launcher_.fd(), POLLOUT, 0},
                                 {guard_.get(), POLLIN, 0},
                                 {from_launcher_.get(), POLLIN, 0}};
            ::poll(watched, 3, turn());
            if (watched[0].revents != 0) to_launcher_.write_some();
            if (watched[2].revents != 0) read_frames();
            gone = watched[1].revents != 0 || launcher_left_ || launcher_is_silent();
        }
    }

    void end(int code) {
        over_ = true;
        code_ = code;
    }

    unique_fd guard_, signals_;
    unique_fd from_launcher_ = take_over(STDIN_FILENO);
    unique_fd to_launcher_fd_ = take_over(STDOUT_FILENO);  // A socket or a pipe, depending on sshd.
    output_queue to_launcher_{to_launcher_fd_.get()};
    remote_frame_reader frames_;
    launch_options options_;
    std::optional<launched_process> process_;  // Set once started.
    std::chrono::milliseconds silence_{0};
    std::chrono::steady_clock::time_point last_heard_{}, last_said_{};
    bool launcher_left_ = false;
    bool over_ = false;
    int code_ = 0;
};

}  // namespace

int serve_launcher() {
    return run_guarded([](unique_fd guard) { return agent(std::move(guard)).run(); });
}

}  // namespace amalgam
