#pragma once

#include <array>
#include <cstdint>

#include <amalgam/core/bytes.hpp>
#include <amalgam/fabric/completion.hpp>
#include <amalgam/rpc/peer.hpp>

namespace amalgam::detail {

struct peer_state;

/// A message to a peer: at the port, or queued for the peer because the port is full.
struct outgoing : completion {
    enum class at : std::uint8_t { nowhere, queue, port };

    explicit outgoing(function on_sent, const peer& there = {}, bool first = false) noexcept
        : completion(on_sent), to(there), urgent(first) {}

    amalgam::peer to;
    std::uint64_t tag = 0;
    std::array<const_bytes, 5> pieces{};
    std::uint8_t piece_count = 0;
    at where = at::nowhere;
    bool is_answer = false;  ///< Counts as unread while queued.
    bool urgent;             ///< Queued ahead of messages that are not.
    peer_state* queue_of;    // In a queue only, as the next two.
    outgoing* previous;
    outgoing* next;
};

}  // namespace amalgam::detail
