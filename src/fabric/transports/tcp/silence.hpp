#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include <amalgam/core/clock.hpp>

namespace amalgam::detail {

/// What the kernel is told so that a host that vanished is noticed, and what it says about one
/// that does not take our bytes.
///
/// Three cases, of which the kernel alone can tell only two apart:
///   - nothing is under way: keep-alive probes find out;
///   - our bytes stay unacknowledged: TCP_USER_TIMEOUT ends the connection;
///   - the peer's window is shut since its program does not read: TCP_USER_TIMEOUT would end this
///     one too (tcp(7)), though the host answers every probe. A program that computes for longer
///     than the limit, or is being debugged, must not lose its connections: so whoever has enough
///     under way to shut a window lifts the timeout before anything can stall, and asks
///     sender_watch now and then instead.

/// Sets keep-alive and timeout so that `limit` of silence ends the connection, rounded up to the
/// whole seconds that keep-alive counts in.
void watch_silence(int fd, std::chrono::milliseconds limit) noexcept;

/// Sets the timeout for unacknowledged bytes alone; 0 lifts it.
void limit_unacknowledged(int fd, std::chrono::milliseconds limit) noexcept;

enum class sender_state : std::uint8_t {
    clear,  ///< All that was sent was acknowledged.
    busy,   ///< Bytes are under way, or the peer's window is shut and its host answers.
    dead    ///< The host stopped answering retransmissions or window probes.
};

/// What the kernel knows about the bytes that a connection sent.
struct sender_facts {
    std::uint32_t unacknowledged = 0;  ///< Segments in flight.
    std::uint32_t unsent_bytes = 0;    ///< In the socket's buffer.
    std::uint32_t unanswered = 0;      ///< Retransmissions or window probes in a row.
    std::chrono::milliseconds since_answer{0};
    /// At least since then some of it has been under way. The last answer may be older: while
    /// nothing is asked nothing is answered.
    std::chrono::milliseconds since_asked{0};
};

sender_state judge(const sender_facts& facts, std::chrono::milliseconds limit) noexcept;

/// Looks at the sender of one connection, again and again.
class sender_watch {
public:
    /// From here on what is under way is looked at.
    void begin(int fd, clock::time_point now) noexcept;
    sender_state look(int fd, std::chrono::milliseconds limit, clock::time_point now) noexcept;

private:
    std::uint64_t acknowledged_ = 0;   ///< Bytes of the connection, when last looked at.
    clock::time_point asked_since_{};  ///< No look since has found that more were.
};

}  // namespace amalgam::detail
