#include "flow/launcher/run_socket.hpp"

#include <algorithm>
#include <cerrno>
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

run_socket::run_socket(const std::string& name, std::function<std::string()> answer)
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
    for (;;) {
        ::pollfd looks[2] = {{listening_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
        if (::poll(looks, 2, -1) < 0) continue;
        if (looks[1].revents != 0) return;
        const unique_fd client(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (!client) {
            // Out of descriptors, for example: poll() would return at once.
            ::pollfd stop{stop_.get(), POLLIN, 0};
            if (errno != EINTR && errno != ECONNABORTED && ::poll(&stop, 1, 100) > 0) return;
            continue;
        }
        try {
            if (is_of_this_user(client.get())) serve(client.get());
        } catch (const std::exception&) {
            // Out of memory: the client sees that there is no answer.
        }
    }
}

void run_socket::serve(int client) {
    const ::timeval limit{2, 0};
    for (const int each : {SO_RCVTIMEO, SO_SNDTIMEO})
        ::setsockopt(client, SOL_SOCKET, each, &limit, sizeof limit);
    char asked = 0;
    if (::recv(client, &asked, 1, 0) != 1 || asked != status_question) return;
    const std::string answer = answer_();
    for (std::size_t sent = 0; sent < answer.size();) {
        const ::ssize_t some =
            ::send(client, answer.data() + sent, answer.size() - sent, MSG_NOSIGNAL);
        if (some < 0 && errno == EINTR) continue;
        if (some <= 0) return;
        sent += static_cast<std::size_t>(some);
    }
}

}  // namespace amalgam::detail
