#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

#include <amalgam/core/status.hpp>
#include <amalgam/rpc/peer.hpp>

namespace amalgam::detail {

/// What an engine remembers of a lost peer.
struct lost_peer {
    std::string address;      ///< By which it was looked up, or connected.
    bool looked_up = false;   ///< Its address can be looked up again.
    status why;               ///< unreachable, disconnected …
    bool unanswered = false;  ///< Disconnected by the keepalive.
};

/// The latest lost peers of an engine, so that messages can name them, and retries can find the
/// engine now listening at the same address.
///
/// Threads: the engine's stream, except given_up().
/// Cost:    bounded: the latest 4,096 that were looked up and 256 that connected. One or two
///          allocations per lost peer; none for others.
class lost_peers {
public:
    /// Out of memory, it is forgotten instead.
    void keep(const peer& gone, lost_peer&& what) noexcept;
    /// Null: not lost, or too long ago.
    const lost_peer* find(const peer& who) const noexcept;
    /// Its port has reused the name.
    void forget(const peer& back) noexcept;
    /// No other path is left either.
    void give_up(const peer& gone) noexcept;
    /// Among the latest given up: a hint, which may miss one. Any thread.
    bool given_up(const peer& who) const noexcept {
        const std::uint64_t mark = mark_of(who);
        return marks_[mark % marks_.size()].load(std::memory_order_relaxed) == mark;
    }

private:
    static std::uint64_t mark_of(const peer& who) noexcept;

    std::unordered_map<peer, lost_peer> all_;
    std::deque<peer> looked_up_;  // Oldest first; some may be back.
    std::deque<peer> came_;
    std::array<std::atomic<std::uint64_t>, 1024> marks_{};
};

/// Why a peer was unreachable, as part of a sentence: the system's text for the native code of this
/// transport. Empty if unknown.
std::string_view reason_of(status why, std::string_view transport) noexcept;

}  // namespace amalgam::detail
