#include "flow/status/run_socket.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <exception>
#include <system_error>
#include <utility>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/time.h>
#include <unistd.h>

namespace amalgam::detail {

::socklen_t abstract_address(std::string_view name, ::sockaddr_un& into) {
    into.sun_family = AF_UNIX;
    const std::size_t size = std::min(name.size(), sizeof into.sun_path - 1);
    into.sun_path[0] = '\0';
    std::memcpy(into.sun_path + 1, name.data(), size);
    return static_cast<::socklen_t>(offsetof(::sockaddr_un, sun_path) + 1 + size);
}

bool is_of_this_user(int socket) {
    ::ucred who{};
    ::socklen_t size = sizeof who;
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) return false;
    return who.uid == ::geteuid() || who.uid == 0;
}

run_socket::run_socket(const std::string& name, answerer answer)
    : answer_(std::move(answer)),
      listening_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)),
      stop_(::eventfd(0, EFD_CLOEXEC)) {
    ::sockaddr_un where{};
    const ::socklen_t size = abstract_address(name, where);
    if (!listening_ || !stop_ ||
        ::bind(listening_.get(), reinterpret_cast<const ::sockaddr*>(&where), size) != 0 ||
        ::listen(listening_.get(), 16) != 0) {
        listening_.reset();
        return;
    }
    silent_.reserve(most_silent);
    try {
        thread_ = std::thread([this] { run(); });
    } catch (const std::system_error&) {  // No thread is left.
        listening_.reset();
    }
}

run_socket::~run_socket() {
    if (!thread_.joinable()) return;
    const std::uint64_t one = 1;
    (void)!::write(stop_.get(), &one, sizeof one);
    thread_.join();
}

void run_socket::run() {
    ::pollfd looks[2 + most_silent];
    for (;;) {
        looks[0] = {listening_.get(), POLLIN, 0};
        looks[1] = {stop_.get(), POLLIN, 0};
        for (std::size_t i = 0; i < silent_.size(); ++i)
            looks[2 + i] = {silent_[i].get(), POLLIN, 0};
        if (::poll(looks, 2 + silent_.size(), -1) < 0) continue;
        if (looks[1].revents != 0) return;
        serve_those_that_ask(looks + 2);
        if (looks[0].revents != 0 && !accept_one()) {
            // Out of descriptors, for example: poll() would return at once.
            ::pollfd stop{stop_.get(), POLLIN, 0};
            if (::poll(&stop, 1, 100) > 0) return;
        }
    }
}

/// `looks`: one for each that is silent so far.
void run_socket::serve_those_that_ask(const ::pollfd* looks) {
    for (std::size_t i = silent_.size(); i-- > 0;) {
        if (looks[i].revents == 0) continue;
        const unique_fd client = std::move(silent_[i]);
        silent_.erase(silent_.begin() + static_cast<std::ptrdiff_t>(i));
        try {
            serve(client.get());
        } catch (const std::exception&) {
            // Out of memory: the client sees that there is no answer.
        }
    }
}

/// False: there may be no descriptor for it.
bool run_socket::accept_one() noexcept {
    unique_fd client(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!client) return errno == EINTR || errno == ECONNABORTED;
    if (!is_of_this_user(client.get())) return true;
    if (silent_.size() == most_silent) silent_.erase(silent_.begin());
    silent_.push_back(std::move(client));  // There is room, from the constructor.
    return true;
}

void run_socket::serve(int client) {
    constexpr std::chrono::seconds limit{2};
    const ::timeval each_send{limit.count(), 0};
    ::setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &each_send, sizeof each_send);
    char asked[most_question_bytes];
    const ::ssize_t got = ::recv(client, asked, sizeof asked, MSG_DONTWAIT);
    if (got <= 0) return;
    const std::string answer = answer_({asked, static_cast<std::size_t>(got)});
    const auto until = std::chrono::steady_clock::now() + limit;
    for (std::size_t sent = 0; sent < answer.size();) {
        const ::ssize_t some =
            ::send(client, answer.data() + sent, answer.size() - sent, MSG_NOSIGNAL);
        if (some < 0 && errno == EINTR) continue;
        if (some <= 0 || std::chrono::steady_clock::now() > until) return;
        sent += static_cast<std::size_t>(some);
    }
}

}  // namespace amalgam::detail
