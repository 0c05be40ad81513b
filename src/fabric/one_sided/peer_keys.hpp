#pragma once

#include <cstddef>
#include <cstdint>

#include <amalgam/core/bytes.hpp>
#include <amalgam/fabric/one_sided.hpp>

#include "fabric/frames/frame.hpp"
#include "fabric/one_sided/frames.hpp"
#include "fabric/one_sided/peer.hpp"

namespace amalgam::detail {

/// The initiator's side: the library's keys of peers' regions. A peer is asked once for each region
/// that is used; until it has answered, and if it answers that there is none, packets carry the
/// transfers. What it told is kept until it tells that the region closed, until it goes, or until
/// other keys need the room.
///
/// Threads: the port's thread.
class peer_keys {
public:
    static constexpr std::size_t max_per_peer = 1024;
    static constexpr std::size_t max_in_all = 16384;
    static constexpr std::size_t max_questions = 16;  ///< Unanswered, per peer. Wire.
    static constexpr std::size_t max_segments = 64;   ///< Of one region. Wire.

    explicit peer_keys(one_sided_carrier& carrier) noexcept
        : carrier_(carrier), each_region_(carrier.one_sided_traits().has_region_keys) {}

    /// A connection begins.
    void greet(one_sided_peer& peer) noexcept {
        if (!each_region_) ask(peer, {});
    }

    /// The open key of that region. nullptr: not known, or not yet; asks for it if it should.
    known_key* find(one_sided_peer&, const remote_key&) noexcept;
    /// Where a byte of the region is. Precondition: open, offset < key.bytes.
    static const known_segment& segment_at(const known_key&, std::uint64_t offset) noexcept;

    static void use(known_key& one) noexcept { ++one.uses; }
    /// Undoes use().
    void leave(one_sided_peer&, known_key&) noexcept;

    delivery on_answer(one_sided_peer&, std::uint64_t tag, const_bytes payload) noexcept;
    delivery on_gone(one_sided_peer&, std::uint64_t region) noexcept;
    /// The peer is gone. Keys in use stay until leave().
    void forget(one_sided_peer&) noexcept;

private:
    void ask(one_sided_peer&, const remote_key&) noexcept;
    bool make_room(one_sided_peer&) noexcept;
    void refuse(known_key&) noexcept;
    bool open_segment(one_sided_peer&, known_key&, const key_answer&, known_segment,
                      const_bytes told) noexcept;
    void close_segments(known_key&) noexcept;
    void drop(one_sided_peer&, std::uint64_t region) noexcept;

    one_sided_carrier& carrier_;
    const bool each_region_;
    std::uint64_t questions_ = 0;
    std::uint64_t uses_ = 0;
    std::size_t count_ = 0;
};

}  // namespace amalgam::detail
