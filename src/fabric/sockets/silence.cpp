#include "fabric/sockets/silence.hpp"

#include <algorithm>
#include <utility>

#include <linux/tcp.h>  // Not <netinet/tcp.h>: its tcp_info ends before the fields needed here.
#include <netinet/in.h>
#include <sys/socket.h>

namespace amalgam::detail {
namespace {

void set(int fd, int level, int option, int value) noexcept {
    // Best effort: a kernel without one of these notices later.
    ::setsockopt(fd, level, option, &value, sizeof value);
}

}  // namespace

void limit_unacknowledged(int fd, std::chrono::milliseconds limit) noexcept {
    set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(limit.count()));
}

void watch_silence(int fd, std::chrono::milliseconds limit) noexcept {
    // First probe at half the limit, then one per second. With TCP_USER_TIMEOUT set, elapsed time
    // ends the connection, at a probe, not the number of probes.
    const auto seconds = static_cast<int>((limit.count() + 999) / 1000);
    set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set(fd, IPPROTO_TCP, TCP_KEEPIDLE, std::max(1, seconds / 2));
    set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
    set(fd, IPPROTO_TCP, TCP_KEEPCNT, std::max(1, seconds - seconds / 2));
    limit_unacknowledged(fd, limit);
}

sender_state judge(const sender_facts& facts, std::chrono::milliseconds limit) noexcept {
    if (facts.unacknowledged == 0 && facts.unsent_bytes == 0) return sender_state::clear;
    // Retransmissions and window probes follow at doubling intervals, so silence since the last
    // answer alone proves nothing: the next one may not have been sent yet.
    const auto silence = std::min(facts.since_answer, facts.since_asked);
    const bool deaf = facts.unanswered >= 2 && silence > limit;
    return deaf ? sender_state::dead : sender_state::busy;
}

void sender_watch::begin(int fd, clock::time_point now) noexcept {
    tcp_info info{};
    socklen_t bytes = sizeof info;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0)
        acknowledged_ = info.tcpi_bytes_acked;
    asked_since_ = now;
}

sender_state sender_watch::look(int fd, std::chrono::milliseconds limit,
                                clock::time_point now) noexcept {
    tcp_info info{};
    socklen_t bytes = sizeof info;
    // A socket that cannot be queried has a pending error, which reading will find.
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return sender_state::busy;
    const std::uint32_t unanswered = std::max(info.tcpi_probes, info.tcpi_retransmits);
    if (std::exchange(acknowledged_, info.tcpi_bytes_acked) != info.tcpi_bytes_acked)
        asked_since_ = now;
    return judge({info.tcpi_unacked, info.tcpi_notsent_bytes, unanswered,
                  std::chrono::milliseconds(info.tcpi_last_ack_recv),
                  std::chrono::duration_cast<std::chrono::milliseconds>(now - asked_since_)},
                 limit);
}

}  // namespace amalgam::detail
