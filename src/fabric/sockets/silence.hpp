#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include <amalgam/core/clock.hpp>

namespace amalgam::detail {

/// Kernel settings that detect a vanished host, and what the kernel knows about a host that does
/// not take our bytes.
///
/// There are three cases, of which the kernel by itself distinguishes only two:
///   - nothing is in flight: keep-alive probes detect the loss;
///   - our bytes stay unacknowledged: TCP_USER_TIMEOUT ends the connection;
///   - the peer's window is shut because its program does not read: TCP_USER_TIMEOUT would end
///     this connection too (tcp(7)), although the host answers every probe. A program that
///     computes for longer than the limit, or is being debugged, must not lose its connections.
///     So a sender with enough in flight to shut a window lifts the timeout before anything can
///     stall, and polls sender_watch instead.

/// Sets keep-alive and timeout so that `limit` of silence ends the connection; rounded up to whole
/// seconds, the unit of keep-alive.
void watch_silence(int fd, std::chrono::milliseconds limit) noexcept;

/// Sets only the timeout for unacknowledged bytes; 0 lifts it.
void limit_unacknowledged(int fd, std::chrono::milliseconds limit) noexcept;

enum class sender_state : std::uint8_t {
    clear,  ///< Everything sent was acknowledged.
    busy,   ///< Bytes are in flight, or the peer's window is shut and its host answers.
    dead    ///< The host stopped answering retransmissions or window probes.
};

/// The kernel's state of the bytes sent on a connection.
struct sender_facts {
    std::uint32_t unacknowledged = 0;  ///< Segments in flight.
    std::uint32_t unsent_bytes = 0;    ///< In the socket's buffer.
    std::uint32_t unanswered = 0;      ///< Consecutive retransmissions or window probes.
    std::chrono::milliseconds since_answer{0};
    /// Bytes have been in flight for at least this long. The last answer may be older, since
    /// without a request there is no answer.
    std::chrono::milliseconds since_asked{0};
};

sender_state judge(const sender_facts& facts, std::chrono::milliseconds limit) noexcept;

/// Watches the sending side of one connection by repeated checks.
class sender_watch {
public:
    /// Starts watching bytes in flight.
    void begin(int fd, clock::time_point now) noexcept;
    sender_state look(int fd, std::chrono::milliseconds limit, clock::time_point now) noexcept;

private:
    std::uint64_t acknowledged_ = 0;   ///< Bytes of the connection at the last check.
    clock::time_point asked_since_{};  ///< No check since has found more.
};

}  // namespace amalgam::detail
