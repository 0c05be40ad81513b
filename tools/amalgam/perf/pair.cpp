#include "perf/pair.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/status.hpp>

namespace amalgam::perf {
namespace {

// First character of a line that reports why the other process ends; used by no other line.
constexpr char failure_mark = '!';

[[noreturn]] void peer_left() {
    throw error(errc::disconnected, "the peer process exited during the measurement");
}

/// Runs the measured side; reports failures to the other side.
void run_peer(const std::function<void(channel&)>& peer, channel& talk) {
    try {
        peer(talk);
    } catch (const error& e) {
        if (e.code() != errc::disconnected) talk.write_failure(e.what());
    } catch (const std::exception& e) {
        talk.write_failure(e.what());
    }
}

/// A socket between the two ranks; rank 0 listens.
unique_fd meet(const std::string& name, bool listens) {
    sockaddr_un where{};
    where.sun_family = AF_UNIX;
    const std::size_t bytes = std::min(name.size(), sizeof where.sun_path - 1);
    std::memcpy(where.sun_path + 1, name.data(), bytes);
    const auto* at = reinterpret_cast<const sockaddr*>(&where);
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
    unique_fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (listens) {
        if (::bind(fd.get(), at, length) != 0 || ::listen(fd.get(), 1) != 0)
            throw error(status{errc::no_memory, errno},
                        "the ranks cannot create a socket between them");
        return unique_fd(::accept4(fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
    }
    while (::connect(fd.get(), at, length) != 0)
        ::usleep(1000);  // Until the other rank listens; mpirun ends this one if it never does.
    return fd;
}

}  // namespace

void channel::write_line(const std::string& line) {
    const std::string text = line + '\n';
    std::size_t at = 0;
    while (at < text.size()) {
        const auto n = ::send(fd_.get(), text.data() + at, text.size() - at, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) peer_left();
        at += static_cast<std::size_t>(n);
    }
}

std::string channel::read_line() {
    std::string line;
    for (char c;;) {
        const auto n = ::recv(fd_.get(), &c, 1, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) peer_left();
        if (c == '\n') break;
        line += c;
    }
    if (line.starts_with(failure_mark)) throw error(errc::handler_failed, line.substr(1));
    return line;
}

void channel::write_failure(std::string_view sentence) noexcept {
    try {
        write_line(failure_mark + std::string(sentence));
    } catch (const std::exception&) {
        // Nobody is left to read it.
    }
}

std::string channel::last_failure() {
    ::shutdown(fd_.get(), SHUT_WR);
    try {
        for (;;)
            read_line();
    } catch (const error& e) {
        return e.code() == errc::handler_failed ? e.what() : "";
    }
}

bool channel::closed() const {
    pollfd waiting{fd_.get(), POLLIN | POLLRDHUP, 0};
    return ::poll(&waiting, 1, 0) > 0 && (waiting.revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0;
}

forked_peer::forked_peer(const std::function<void(channel&)>& peer, int processor) {
    const char* ranks = std::getenv(ranks_variable);
    if (ranks == nullptr) {
        fork_peer(peer, processor);
        return;
    }
    const bool is_peer = std::strcmp(std::getenv("OMPI_COMM_WORLD_RANK"), "0") != 0;
    pin_to_processor(is_peer ? processor : 0);
    channel_ = channel(meet(ranks, !is_peer));
    if (!is_peer) return;
    run_peer(peer, channel_);
    channel_ = channel(unique_fd{});  // The other rank waits for this, and MPI's end for it.
    std::exit(0);
}

void forked_peer::fork_peer(const std::function<void(channel&)>& peer, int processor) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        throw error(status{errc::no_memory, errno}, "cannot create a socket pair for the peer");
    unique_fd ours(ends[0]);
    unique_fd theirs(ends[1]);
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0) throw error(status{errc::no_memory, errno}, "cannot start the peer process");
    if (pid_ == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(1);
        ours.reset();
        pin_to_processor(processor);
        channel talk(std::move(theirs));
        run_peer(peer, talk);
        ::_exit(0);
    }
    pin_to_processor(0);
    channel_ = channel(std::move(ours));
}

forked_peer::~forked_peer() {
    if (const std::string unheard = channel_.last_failure(); !unheard.empty())
        std::fprintf(stderr, "amalgam perf: peer: %s\n", unheard.c_str());
    while (pid_ > 0 && ::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
}

bool pin_to_processor(int n) {
    // Allowed processors are read once: pinning narrows them.
    static const cpu_set_t allowed = [] {
        cpu_set_t set;
        CPU_ZERO(&set);
        ::sched_getaffinity(0, sizeof set, &set);
        return set;
    }();
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &allowed) || n-- > 0) continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        return ::sched_setaffinity(0, sizeof one, &one) == 0;
    }
    return false;
}

}  // namespace amalgam::perf
