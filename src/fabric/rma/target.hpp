#pragma once

#include <cstddef>

#include <amalgam/core/counter.hpp>

#include "fabric/frames/frame.hpp"
#include "fabric/frames/rma_frames.hpp"
#include "fabric/limits.hpp"
#include "fabric/memory/guarded_memory.hpp"
#include "fabric/peers/peer_table.hpp"
#include "fabric/rma/region_table.hpp"

namespace amalgam::detail {

/// The target side of put, get and atomic operations: checks every frame's key, then reads or
/// writes memory.
///
/// A reply that finds its link full waits in the peer's record. Beyond `answer_limit` of them the
/// link is paused; a peer that respects limits::rma_window never gets there.
/// Threads: the port's thread.
class rma_target {
public:
    static constexpr std::size_t answer_limit = 2 * limits::rma_window;

    rma_target(region_table& regions, piece_pool& pieces, peer_ender& ender) noexcept
        : regions_(regions), pieces_(pieces), ender_(ender) {}

    /// As rma_initiator::guard_memory().
    void guard_memory() { memory_.guard(); }

    /// Carries out a frame received whole.
    delivery on_put(peer_record&, const frame_header&, const_bytes payload) noexcept;
    /// `told`: what to tell of a put that is whole by this frame; else it stays unset.
    delivery on_put_notify(peer_record&, const frame_header&, const_bytes payload,
                           put_notice& told) noexcept;
    delivery on_atomic(peer_record&, const frame_header&, const_bytes payload) noexcept;
    delivery on_get(peer_record&, const frame_header&, const_bytes payload) noexcept;

    /// A put with only its first bytes received: sets up the placement. False: malformed, or the
    /// peer was ended because memory ran out.
    bool begin_put(peer_record&, const frame_header&, const_bytes prefix) noexcept;
    /// Returns what to tell, as on_put_notify().
    put_notice end_put(peer_record&) noexcept;
    /// Memory of an open placement cannot be written: the reply to its put says so.
    void unwritable(peer_record&) noexcept;
    /// Drops an open placement together with its link.
    void forget_put(peer_record&) noexcept;

    /// How many frames of peers' puts and gets were answered. Any thread.
    std::uint64_t served() const noexcept { return served_.value(); }

    /// Sends waiting replies while the link has room.
    void pump(peer_record&) noexcept;
    /// The link no longer uses the piece.
    void sent(lent_piece& piece) noexcept;
    /// Afterwards nothing refers to the region's memory.
    void close(std::uint64_t region, const peer_table& peers) noexcept;

private:
    void answer_put(peer_record&, std::uint64_t tag, status) noexcept;
    void answer_notified(peer_record&, std::uint64_t tag, status, put_notice& told) noexcept;
    void answer(peer_record&, const rma_answer&) noexcept;
    bool send(peer_record&, const rma_answer&) noexcept;
    bool send_fetched(peer_record&, const rma_answer&) noexcept;
    bool send_data(peer_record&, const rma_answer&, region_entry&) noexcept;

    region_table& regions_;
    piece_pool& pieces_;
    user_memory memory_;
    owned_counter served_;
    peer_ender& ender_;
};

}  // namespace amalgam::detail
