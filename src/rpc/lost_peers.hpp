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

/// What an engine knows of a peer past its loss.
struct lost_peer {
    std::string address;     ///< Where it was looked up or came from.
    bool looked_up = false;  ///< Its address may be looked up again.
    status why;              ///< unreachable, disconnected …
};

/// The peers that an engine has lost, the latest of them: so that messages name them, and calls
/// that may be retried find who listens at the same address now.
///
/// Threads: the engine's stream, but for contains().
/// Cost:    bounded: the latest 4,096 that were looked up and 256 of those that came. A peer that
///          is lost costs one allocation or two; one that is not costs nothing.
class lost_peers {
public:
    static constexpr std::size_t max_looked_up = 4096;
    static constexpr std::size_t max_came = 256;

    /// Where there is no memory it is forgotten instead.
    void keep(const peer& gone, lost_peer&& what) noexcept;
    /// Null: not lost, or too long ago.
    const lost_peer* find(const peer& who) const noexcept;
    /// Its port has given the name out again.
    void forget(const peer& back) noexcept;
    /// No other way leads there either.
    void give_up(const peer& gone) noexcept;
    /// It is among the latest that were given up: a hint, which may miss one. Any thread.
    bool given_up(const peer& who) const noexcept {
        const std::uint64_t mark = mark_of(who);
        return marks_[mark % marks_.size()].load(std::memory_order_relaxed) == mark;
    }

private:
    static std::uint64_t mark_of(const peer& who) noexcept;

    std::unordered_map<peer, lost_peer> all_;
    std::deque<peer> looked_up_;  // The oldest first; some may be back.
    std::deque<peer> came_;
    std::array<std::atomic<std::uint64_t>, 1024> marks_{};
};

/// Why a peer was not reached, as a part of a sentence: what the system calls the native code of
/// this transport. Empty: nothing is known.
std::string_view reason_of(status why, std::string_view transport) noexcept;

}  // namespace amalgam::detail
