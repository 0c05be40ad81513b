#include "fabric/sockets/resolver.hpp"

#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <netdb.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <amalgam/core/blocked_signals.hpp>
#include <amalgam/core/detail/no_thread.hpp>
#include <amalgam/core/unique_fd.hpp>

namespace amalgam::detail {

result<std::vector<socket_address>> resolve(const std::string& host, std::uint16_t port) {
    addrinfo wanted{};
    wanted.ai_family = AF_UNSPEC;
    wanted.ai_socktype = SOCK_STREAM;
    addrinfo* first = nullptr;
    if (int why = ::getaddrinfo(host.c_str(), nullptr, &wanted, &first); why != 0) {
        const char* text = why == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(why);
        return failure{{errc::unreachable, why},
                       fmt::format("cannot resolve the host name \"{}\": {}", host, text)};
    }
    std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(first, &::freeaddrinfo);
    std::vector<socket_address> found;
    for (const addrinfo* one = first; one != nullptr; one = one->ai_next)
        if (socket_address address(*one->ai_addr, one->ai_addrlen); address)
            found.push_back(address.with_port(port));
    if (!found.empty()) return found;
    return failure{{errc::unreachable},
                   fmt::format("the host \"{}\" has neither an IPv4 nor an IPv6 address", host)};
}

namespace {

result<std::vector<socket_address>> resolve_or_lack_memory(const std::string& host,
                                                           std::uint16_t port) noexcept try {
    return resolve(host, port);
} catch (const std::bad_alloc&) {
    return failure{{errc::no_memory}, {}};
}

}  // namespace

struct resolver::state {
    unique_fd answered{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    std::mutex guard;             // Guards the members below.
    std::list<answer> questions;  // Elements move to `answers`, which cannot fail.
    std::list<answer> answers;
    std::uint64_t last_number = 0;
    bool running = false;
    bool abandoned = false;

    /// The thread's function: answers until no questions are left.
    void run() {
        std::unique_lock lock(guard);
        while (!questions.empty() && !abandoned) {
            std::list<answer> one;
            one.splice(one.begin(), questions, questions.begin());
            lock.unlock();
            answer& now = one.front();
            now.addresses = resolve_or_lack_memory(now.host, now.port);
            lock.lock();
            answers.splice(answers.end(), one);
            std::uint64_t times = 1;
            [[maybe_unused]] ssize_t put = ::write(answered.get(), &times, sizeof times);
        }
        running = false;
    }
};

resolver::resolver() : state_(std::make_shared<state>()) {
    if (!state_->answered)
        throw error(status{errc::no_memory, errno},
                    "out of file descriptors for a tcp port's eventfd; raise the limit on open "
                    "files (ulimit -n)");
}

resolver::~resolver() {
    std::lock_guard lock(state_->guard);
    state_->abandoned = true;
}

std::uint64_t resolver::ask(std::string host, std::uint16_t port) {
    std::lock_guard lock(state_->guard);
    if (!state_->running) {
        const amalgam::detail::blocked_signals not_ours;
        try {
            std::thread([kept = state_] { kept->run(); }).detach();  // Waits for the lock.
        } catch (const std::system_error& why) {
            throw no_thread("that resolves host names", why);
        }
        state_->running = true;
    }
    const std::uint64_t number = ++state_->last_number;
    state_->questions.push_back({number, std::move(host), port, {errc::unreachable, ""}});
    return number;
}

int resolver::fd() const noexcept {
    return state_->answered.get();
}

std::list<resolver::answer> resolver::take() {
    std::lock_guard lock(state_->guard);
    std::uint64_t times;
    [[maybe_unused]] ssize_t got = ::read(state_->answered.get(), &times, sizeof times);
    std::list<answer> taken;
    taken.swap(state_->answers);
    return taken;
}

}  // namespace amalgam::detail
