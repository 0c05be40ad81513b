#include "fabric/transports/tcp/reception.hpp"

#include <cerrno>
#include <chrono>
#include <cstring>

#include <sys/socket.h>

#include <amalgam/core/log.hpp>

#include "fabric/transports/tcp/tcp_port.hpp"

namespace amalgam::detail {
namespace {

constexpr int accepts_at_a_time = 64;
constexpr std::chrono::milliseconds moment{100};

}  // namespace

reception::reception(tcp_port& home, unique_fd listener)
    : home_(home), listener_(std::move(listener)) {
    home_.events().watch(listener_.get(), *this, EPOLLIN);
}

void reception::ready(std::uint32_t) noexcept {
    for (int i = 0; i < accepts_at_a_time && !held_; ++i) {
        if (strangers_ >= max_strangers) return hold(0);
        unique_fd socket(
            ::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (socket) {
            if (home_.take_in(std::move(socket))) ++strangers_;
            continue;
        }
        // Others are errors of the connection that was to be accepted: on to the next one.
        if (errno == EAGAIN) return;
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            return hold(errno);
    }
}

void reception::hold(int why) noexcept {
    held_ = true;
    home_.events().change(listener_.get(), *this, 0);
    home_.times().add(clock::steady().now() + moment, *this);
    log(log_level::warn, "tcp", "new connections have to wait",
        {{"why", why != 0 ? std::strerror(why) : "too many have not said hello yet"}});
}

void reception::due(clock::time_point) noexcept {
    held_ = false;
    home_.events().change(listener_.get(), *this, EPOLLIN);
}

void reception::stranger_settled() noexcept {
    --strangers_;
}

}  // namespace amalgam::detail
