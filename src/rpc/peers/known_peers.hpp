#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <amalgam/fabric/identity.hpp>
#include <amalgam/fabric/port.hpp>
#include <amalgam/rpc/peer.hpp>

namespace amalgam::detail {

struct outgoing;
class short_lane;
class transfer_record;
struct admission;

/// State of one peer, from the first lookup or message until it is lost.
///
/// Threads: the engine's stream.
struct peer_state {
    peer name;            ///< Empty while the slot is free.
    std::string address;  ///< What it was looked up by; empty: ask the port.
    // Messages queued because the port is full, in order, and callers waiting for the queue to
    // shrink.
    outgoing* queue_first = nullptr;
    outgoing* queue_last = nullptr;
    std::size_t queued = 0;
    std::size_t unread_bytes = 0;       ///< Bytes counted for the queued answers.
    peer_state* next_queued = nullptr;  ///< Next peer with queued messages, for flush().
    std::size_t one_ways = 0;           ///< Its one-way calls running here in ULTs.
    bool listed = false;                ///< Linked into that list.
    bool introduced = false;            ///< See route_table.
    bool untold = false;                ///< No user was given this name: its loss is not reported.
    bool unanswered = false;            ///< Being disconnected for that: see keepalive.
    bool heard = false;                 ///< A message came from it: it is connected.
    /// Messages up to this size go to `way` at once, which then takes or refuses them, but keeps
    /// nothing of theirs. 0 while others are queued, and until it was heard. Set by outbox.
    std::size_t at_once_bytes = 0;
    port* way = nullptr;  ///< Once heard.
    /// Where the shortest of those are written; null: they go through `way`, as do those for which
    /// it has no room. Set by outbox, as at_once_bytes.
    short_lane* lane = nullptr;
    std::unique_ptr<const identity> who;  ///< Once somebody asked, and it was known.
    admission* admissions = nullptr;
    std::size_t pending_calls = 0;         ///< Those waiting for its reply.
    transfer_record* transfers = nullptr;  ///< Between its memory and ours.

    /// The peer has confirmed this procedure's name and signature, so the id suffices.
    bool verified(std::uint32_t procedure) const noexcept {
        if (procedure < 64) [[likely]]
            return (verified_first_ >> procedure & 1) != 0;
        const std::size_t word = procedure / 64 - 1;
        return word < verified_.size() && (verified_[word] >> procedure % 64 & 1) != 0;
    }
    void set_verified(std::uint32_t procedure, bool yes) noexcept;

private:
    friend class known_peers;
    std::uint64_t verified_first_ = 0;     // Of the first 64 procedures, which most calls are of.
    std::vector<std::uint64_t> verified_;  // Of the others.
};

/// The peers of an engine, by slot and by port and id.
///
/// Threads: the engine's stream.
/// Cost:    look-up of a peer that came lately, among some 64: two loads; else one hash look-up.
class known_peers {
public:
    explicit known_peers(engine_core& owner) noexcept : owner_(owner) {}

    /// State of that peer; created if unknown.
    peer_state& meet(std::uint16_t port, peer_id id);
    /// Null: lost.
    peer_state* find(const peer& who) noexcept {
        if (who.slot() >= slots_.size()) return nullptr;
        peer_state& state = *slots_[who.slot()];
        return state.name == who ? &state : nullptr;
    }
    peer_state* find(std::uint16_t port, peer_id id) noexcept {
        peer_state* const recent = find_recent(port, id);
        return recent != nullptr ? recent : look_up(port, id);
    }
    /// Null: it may be known all the same.
    peer_state* find_recent(std::uint16_t port, peer_id id) noexcept {
        peer_state* const recent = recent_of(port, id);
        const bool is_it =
            recent != nullptr && recent->name.id() == id && recent->name.port() == port;
        return is_it ? recent : nullptr;
    }
    /// Frees the slot for another peer.
    void forget(peer_state& gone) noexcept;

    template <typename Function>
    void for_each(Function visit) {
        for (const auto& each : slots_) {
            if (each->name) visit(*each);
        }
    }

private:
    struct key {
        peer_id id;
        std::uint16_t port;
        friend bool operator==(const key&, const key&) = default;
    };
    struct hash {
        std::size_t operator()(const key& k) const noexcept {
            return std::hash<peer_id>{}(k.id) + k.port;
        }
    };

    /// Ports count their ids up, so that peers of one port are in places of their own.
    peer_state*& recent_of(std::uint16_t port, peer_id id) noexcept {
        return recent_[(id.value + port) % recent_.size()];
    }
    peer_state* look_up(std::uint16_t port, peer_id id) noexcept;

    engine_core& owner_;
    // Read for every call and reply; indexing a deque of states would take longer.
    std::vector<std::unique_ptr<peer_state>> slots_;
    std::vector<std::uint32_t> free_;
    std::unordered_map<key, std::uint32_t, hash> by_id_;
    std::array<peer_state*, 64> recent_{};  // Some may be forgotten: those have other names.
};

}  // namespace amalgam::detail
