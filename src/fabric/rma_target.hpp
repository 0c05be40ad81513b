#pragma once

#include <cstddef>

#include "fabric/frame.hpp"
#include "fabric/guarded_memory.hpp"
#include "fabric/peer_table.hpp"
#include "fabric/region_table.hpp"
#include "fabric/rma_frames.hpp"

namespace amalgam::detail {

/// Put and get as the side that owns the memory: checks every frame's key, then reads or writes.
///
/// An answer that finds its link full waits in the peer's record; at most `answer_limit` do before
/// the link is paused, and a peer that keeps to rma_window never gets there.
/// Threads: the port's.
class rma_target {
public:
    static constexpr std::size_t answer_limit = 2 * rma_window;

    rma_target(region_table& regions, piece_pool& pieces, peer_ender& ender) noexcept
        : regions_(regions), pieces_(pieces), ender_(ender) {}

    /// As rma_initiator::guard_memory().
    void guard_memory() { memory_.guard(); }

    /// Carry out a frame that is here whole.
    verdict on_put(peer_record&, const frame_header&, const_bytes payload) noexcept;
    verdict on_get(peer_record&, const frame_header&, const_bytes payload) noexcept;

    /// A put of which only the first bytes are here: makes the landing. False: malformed, or
    /// the peer was ended for want of memory.
    bool begin_put(peer_record&, const frame_header&, const_bytes prefix) noexcept;
    void end_put(peer_record&) noexcept;
    /// The memory of an open landing cannot be written: its put is answered so.
    void unwritable(peer_record&) noexcept;
    /// An open landing is given up, with its link.
    void forget_put(peer_record&) noexcept;

    /// Sends the answers that waited, as far as the link has room.
    void pump(peer_record&) noexcept;
    /// The link has no use for the piece any more.
    void sent(lent_piece& piece) noexcept;
    /// Nothing names the region's memory any more after this.
    void close(std::uint64_t region, const peer_table& peers) noexcept;

private:
    void answer(peer_record&, const rma_answer&) noexcept;
    bool send(peer_record&, const rma_answer&) noexcept;
    bool send_data(peer_record&, const rma_answer&, region_entry&) noexcept;

    region_table& regions_;
    piece_pool& pieces_;
    user_memory memory_;
    peer_ender& ender_;
};

}  // namespace amalgam::detail
