#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <amalgam/fabric/completion.hpp>
#include <amalgam/fabric/message.hpp>
#include <amalgam/fabric/region.hpp>

#include "fabric/frames/frame.hpp"
#include "fabric/frames/rma_frames.hpp"
#include "fabric/frames/slot_ids.hpp"
#include "fabric/limits.hpp"
#include "fabric/memory/atomic_operation.hpp"
#include "fabric/memory/guarded_memory.hpp"
#include "fabric/memory/segments.hpp"
#include "fabric/peers/operations.hpp"
#include "fabric/peers/peer_table.hpp"

namespace amalgam::detail {

/// A put, get or atomic operation in flight that this port initiated.
struct rma_operation {
    std::uint64_t id =
        0;  ///< Slot and generation; 0 while the slot is free. The tag of its frames.
    completion* user = nullptr;
    peer_record* peer = nullptr;
    enum class kind : std::uint8_t { put, get, atomic };
    kind what = kind::get;
    bool notifies = false;  ///< put: its last piece tells the target.
    gather from;            ///< put.
    scatter into;           ///< get.
    remote_key key;
    std::uint64_t offset = 0;
    std::uint64_t total = 0;  ///< Bytes that frames move.
    std::uint64_t whole;      ///< put and get: all its bytes, also those moved without frames.
    std::uint64_t notice;     ///< put that notifies.
    /// For atomic operations. `old`: what was there before; null: not wanted.
    atomic_operation::kind atomic;
    std::uint64_t operand, desired;
    std::uint64_t* old;
    std::uint64_t asked = 0;   ///< Bytes covered by frames sent.
    std::uint64_t landed = 0;  ///< get: bytes that arrived.
    segment_cursor at;         ///< put: next byte to send; get: where the next byte lands.
    std::uint32_t pieces_asked = 0;
    std::uint32_t pieces_answered = 0;
    std::uint32_t pieces_lent = 0;  ///< put: pieces the link still borrows.
    bool listed_asked = false;      ///< Linked in the peer's `asked`, else in `to_ask`.
    bool stopped = false;           ///< put: sends no more and ends with `why`.
    bool notice_left = false;       ///< The piece that tells the target was sent.
    status why;
    rma_operation* next = nullptr;  ///< In the peer's to_ask or asked.
    rma_operation* previous = nullptr;

    bool is_put() const noexcept { return what == kind::put; }
    bool all_asked() const noexcept { return pieces_asked > 0 && asked == total; }
    /// No byte that was sent is still to be written at the target.
    bool is_quiet() const noexcept { return pieces_answered >= pieces_asked; }
    /// Size of the piece that starts `done` bytes into the transfer.
    std::size_t piece_bytes(std::uint64_t done) const noexcept;
};

/// A put or get that frames go on with: its first bytes were moved without them, or it had to wait.
struct rma_rest {
    bool is_put = false;
    bool notifies = false;  ///< A put that tells the target, with all of its bytes.
    std::uint64_t notice = 0;
    gather from;   ///< put.
    scatter into;  ///< get.
    segment_cursor at;
    remote_key key;
    std::uint64_t offset = 0;  ///< In the region, of the first byte that is left.
    std::uint64_t left = 0;
    std::uint64_t total = 0;
};

/// The initiating side of put, get and atomic operations: splits them into frames, keeps up to
/// limits::rma_window of these in flight per peer, and ends each operation once, by its replies,
/// the peer's end or cancel().
///
/// A put that fails or is canceled is stopped first. It ends when the target has answered every
/// piece that was sent, so that none is written later. A get ends at once: data that still arrives
/// for it is dropped.
/// Replies name an operation by slot and generation, so a late or forged reply matches nothing.
/// Threads: the port's thread.
class rma_initiator {
public:
    rma_initiator(completion_queue& completions, piece_pool& pieces) noexcept
        : completions_(completions), pieces_(pieces) {}

    /// Memory that cannot be read or written fails its transfer, not the process.
    /// Failure: throws std::bad_alloc.
    void guard_memory() { memory_.guard(); }

    /// Returns full, pending, or pending with a completion already due (out of memory).
    /// Precondition: the peer is up.
    posted put(peer_record&, gather, const remote_key&, std::uint64_t offset,
               completion& user) noexcept;
    posted get(peer_record&, scatter, const remote_key&, std::uint64_t offset,
               completion& user) noexcept;
    /// A put that tells the target. `moved`: its bytes are there already, so that only the notice
    /// is sent; never full then.
    posted put_notify(peer_record&, gather, const remote_key&, std::uint64_t offset,
                      std::uint64_t notice, bool moved, completion& user) noexcept;
    posted atomic(peer_record&, const remote_key&, std::uint64_t offset, const atomic_operation&,
                  std::uint64_t* old, completion& user) noexcept;
    /// Never full: pending, or its completion is due.
    void go_on(peer_record&, const rma_rest&, completion& user) noexcept;

    /// Sends as much as the window and the link allow.
    void pump(peer_record&) noexcept;

    /// Handles the peer's rma_done. Runs the completion it ends.
    delivery on_done(peer_record&, const frame_header&, const_bytes payload) noexcept;
    /// Handles the peer's get_data, received whole. Runs the completion it ends.
    delivery on_data(peer_record&, const frame_header&, const_bytes payload) noexcept;
    /// The same with only the first bytes received: sets up the placement. False: malformed.
    bool begin_data(peer_record&, const frame_header&, const_bytes prefix) noexcept;
    void end_data(peer_record&) noexcept;
    /// Handles the peer's answer to an atomic operation. Runs the completion it ends.
    delivery on_fetched(peer_record&, const frame_header&, const_bytes payload) noexcept;

    /// Ends the operation with `canceled`: puts of which something was sent when all of that has
    /// been answered; everything else at once. A notified put that had left ends as the target
    /// says.
    void cancel(completion& user) noexcept;
    /// The link no longer uses the piece.
    void sent(lent_piece& piece) noexcept;
    /// A piece cannot be read. `left`: its frame is sent anyway, with zeros, and will be answered.
    /// No more pieces are sent, and the operation fails once all sent pieces are answered.
    void unreadable(lent_piece& piece, status why, bool left) noexcept;
    /// Whether the piece's operation has queued its notice behind it, so that the target would be
    /// told of bytes that it did not get.
    static bool is_told_of(const lent_piece& piece, bool begun) noexcept {
        return piece.operation->notice_left && (begun || !piece.notifies);
    }
    /// Ends the operation in the next run of the completions.
    void fail(rma_operation&, status why) noexcept;
    /// Ends all operations with this peer with `why`, in the next run of the completions.
    /// Precondition: its `sends` is empty.
    void peer_down(peer_record&, status why) noexcept;

private:
    rma_operation* start(peer_record&, const remote_key&, std::uint64_t offset,
                         completion& user) noexcept;
    bool may_tell_of(gather from) noexcept;
    posted launch(rma_operation&, bool may_be_full = true) noexcept;
    rma_operation* find(const peer_record&, std::uint64_t id) noexcept;
    posted send_piece(rma_operation&) noexcept;
    posted send_put(rma_operation&, std::size_t bytes) noexcept;
    posted send_get(rma_operation&, std::size_t bytes) noexcept;
    posted send_atomic(rma_operation&) noexcept;
    rma_operation* expect_data(peer_record&, const frame_header&, std::uint64_t offset,
                               bool& malformed) noexcept;
    void data_arrived(rma_operation&, std::size_t bytes) noexcept;
    bool stop(rma_operation&, status why) noexcept;
    void list_as_asked(rma_operation&) noexcept;
    completion& retire(rma_operation&) noexcept;
    enum class keep : std::uint8_t { nothing, begun_notice };
    void take_back(rma_operation&, keep) noexcept;
    static bool notice_is_lent(const rma_operation&) noexcept;

    completion_queue& completions_;
    piece_pool& pieces_;
    user_memory memory_;
    slot_ids ids_;
    std::vector<std::unique_ptr<rma_operation>> slots_;
};

}  // namespace amalgam::detail
