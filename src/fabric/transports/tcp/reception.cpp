#include "fabric/transports/tcp/reception.hpp"

#include <cerrno>
#include <chrono>
#include <cstring>

#include <poll.h>
#include <sys/socket.h>

#include <amalgam/core/limited_log.hpp>

#include "fabric/transports/tcp/port.hpp"

namespace amalgam::detail {
namespace {

constexpr int accepts_at_a_time = 64;
// Each may scan all connections.
constexpr int evictions_at_a_time = 4;
constexpr std::chrono::milliseconds moment{100};

}  // namespace

reception::reception(tcp_port& home, unique_fd listener)
    : home_(home), listener_(std::move(listener)) {
    home_.events().watch(listener_.get(), *this, EPOLLIN);
}

reception::~reception() {
    home_.events().close(listener_);
}

void reception::ready(std::uint32_t) noexcept {
    int evicted = 0;
    for (int i = 0; i < accepts_at_a_time && !held_; ++i) {
        unique_fd socket(
            ::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (socket) {
            if (!home_.take_in(std::move(socket))) continue;
            if (++strangers_ > home_.max_strangers()) home_.evict_stranger();
            continue;
        }
        // Other errors concern the connection being accepted: continue with the next.
        if (errno == EAGAIN) return;
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            const int why = errno;
            if (!somebody_waits()) return;  // accept() needs a descriptor before it checks.
            if (evicted++ < evictions_at_a_time && home_.evict_for_newcomer()) continue;
            return hold(why);
        }
    }
}

bool reception::somebody_waits() const noexcept {
    pollfd handle{listener_.get(), POLLIN, 0};
    return ::poll(&handle, 1, 0) == 1;
}

void reception::hold(int why) noexcept {
    held_ = true;
    home_.events().change(listener_.get(), *this, 0);
    home_.times().add(clock::steady().now() + moment, *this);
    limited_log(log_level::warn, "tcp", "cannot accept connections for now",
                {{"why", std::strerror(why)}});
}

void reception::due(clock::time_point) noexcept {
    held_ = false;
    home_.events().change(listener_.get(), *this, EPOLLIN);
}

void reception::stranger_settled() noexcept {
    --strangers_;
}

}  // namespace amalgam::detail
