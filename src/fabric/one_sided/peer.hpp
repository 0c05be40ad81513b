#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <amalgam/core/clock.hpp>
#include <amalgam/fabric/one_sided.hpp>

#include "fabric/frames/chain.hpp"
#include "fabric/frames/frame.hpp"

namespace amalgam::detail {

/// A segment of a peer's region, as its carrier's key opens it.
struct known_segment {
    void* key = nullptr;  ///< From open_key().
    std::uint64_t start = 0;
    std::uint64_t bytes = 0;
};

/// What is known of a peer's region.
struct known_key {
    enum class state : std::uint8_t {
        asked,  ///< Packets carry its transfers meanwhile.
        open,   ///< All segments are known.
        none    ///< Packets carry its transfers.
    };

    remote_key key;
    state what = state::asked;
    bool dropped = false;        ///< Not in the table any more; deleted with its last use.
    std::uint64_t question = 0;  ///< Tag of the frame that asked.
    std::size_t answers = 0;     ///< That have come.
    std::uint64_t told_bytes = 0;
    std::uint32_t uses = 0;  ///< Transfers that were started and are not over.
    std::uint64_t last_use = 0;
    std::vector<known_segment> segments;
};

/// Something that a target tells a peer when its link has room.
struct key_notice {
    std::uint64_t tag = 0;
    remote_key key;
    bool gone = false;       ///< The region `tag` closed; else the answer to question `tag`.
    std::uint16_t next = 0;  ///< Segments told so far.
};

struct direct_operation;

/// What is kept for one peer with which transfers are one-sided.
struct one_sided_peer {
    one_sided_peer(frame_link& sends, packet_link& carries) noexcept : link(sends), by(carries) {}

    frame_link& link;
    packet_link& by;
    bool up = true;
    bool is_awaited = false;  ///< Down; its link is released after its last transfer.
    bool given_up = false;    ///< Its operations were completed although the carrier holds some.
    bool unlinked = false;    ///< Its link is gone: only the carrier still needs this.
    clock::time_point gives_up_at{};  ///< Once down, with transfers that are not over.

    // ---- its regions
    std::unordered_map<std::uint64_t, std::unique_ptr<known_key>> keys;  ///< By region.
    std::vector<std::unique_ptr<known_key>> dropped;                     ///< Still in use.
    std::vector<known_key*> asked;
    std::size_t unanswered = 0;   ///< Questions, also about regions that have closed meanwhile.
    known_key* latest = nullptr;  ///< Found last.
    chain<direct_operation> operations;
    std::size_t held = 0;  ///< Transfers that the carrier holds.

    // ---- our regions
    std::vector<std::byte> name;             ///< As its last question gave it.
    std::vector<key_notice> notices;         ///< Oldest first.
    std::unordered_set<std::uint64_t> told;  ///< Regions of which it was told something.
    std::size_t questions = 0;               ///< In `notices`.
};

}  // namespace amalgam::detail
