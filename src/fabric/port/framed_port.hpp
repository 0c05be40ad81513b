#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <amalgam/core/buffer.hpp>
#include <amalgam/core/counter.hpp>
#include <amalgam/core/detail/forks.hpp>
#include <amalgam/core/random.hpp>
#include <amalgam/fabric/extension/peer_traffic.hpp>
#include <amalgam/fabric/port.hpp>
#include <amalgam/fabric/transport.hpp>

#include "fabric/frames/chain.hpp"
#include "fabric/frames/frame.hpp"
#include "fabric/peers/matching.hpp"
#include "fabric/peers/operations.hpp"
#include "fabric/peers/peer_table.hpp"
#include "fabric/rma/initiator.hpp"
#include "fabric/rma/region_table.hpp"
#include "fabric/rma/target.hpp"

namespace amalgam::detail {

/// Common part of the native transports: peers, matching of expected messages, the region table and
/// its checks, put and get over frames, exactly-once completion. A transport derives from it, moves
/// frames, and calls the functions under "from the transport".
///
/// Threads: the port's thread. Upcalls happen only inside move_frames(), except where noted.
class framed_port : public port, public traffic_counts, private peer_ender {
public:
    /// Completes remaining operations with `closed`, without touching links: see end_everything().
    ~framed_port() override;

    const capabilities& can() const noexcept final;
    std::uint64_t incarnation() const noexcept final;
    result<peer_id> lookup(std::string_view address) noexcept final;
    std::string peer_address(peer_id) const final;
    identity who(peer_id) const final;
    void close(peer_id) noexcept final;
    void set_sink(message_sink*) noexcept final;
    posted post_send(peer_id, std::uint64_t tag, gather, completion&) noexcept override;
    posted post_send_expected(peer_id, std::uint64_t tag, gather, completion&) noexcept final;
    posted post_receive(peer_id, std::uint64_t tag, mutable_bytes, completion&) noexcept final;
    using port::open_region;
    result<region> open_region(scatter, access) noexcept override;
    posted post_put(peer_id, gather, const remote_key&, std::uint64_t, completion&) noexcept final;
    posted post_get(peer_id, scatter, const remote_key&, std::uint64_t, completion&) noexcept final;
    posted post_put_notify(peer_id, gather, const remote_key&, std::uint64_t offset,
                           std::uint64_t notice, completion&) noexcept final;
    posted post_fetch_add(peer_id, const remote_key&, std::uint64_t offset, std::uint64_t add,
                          std::uint64_t* old, completion&) noexcept final;
    posted post_compare_swap(peer_id, const remote_key&, std::uint64_t offset,
                             std::uint64_t expected, std::uint64_t desired, std::uint64_t* old,
                             completion&) noexcept final;
    void cancel(completion&) noexcept final;
    std::size_t progress(std::size_t budget) noexcept final;
    bool prepare_to_sleep() noexcept final;  ///< False while completions are due; else arm().
    std::size_t open_operations() const noexcept final;
    port_usage usage() const noexcept final;
    transfer_counts transfers() const noexcept final;
    peer_traffic traffic_with(peer_id) const noexcept final;
    peer_traffic traffic() const noexcept final;

protected:
    /// Pass `incarnation` only where runs must be reproducible.
    framed_port(const port_options& options, capabilities can,
                std::uint64_t incarnation = random_nonzero_u64());
    /// Shuts and releases every link and completes everything with `closed`. A transport's
    /// destructor calls it first, while its links still exist.
    void end_everything() noexcept;
    /// Its first part: shuts every link. Runs no callbacks.
    void shut_everything() noexcept;
    /// This process is a child of fork() of the one that made the port.
    bool is_inherited() const noexcept { return forked_.is_in_child(); }
    /// What a transport's destructor calls first in such a child: completes everything with
    /// `closed`, and touches no link, as these are the parent's.
    void end_without_links() noexcept;

    // ---- implemented by each transport

    /// Creates a link to this address, connecting or connected. Frames sent before it is up are
    /// `pending` (or copied) up to some bound, then `full`. On failure to connect:
    /// link_down(unreachable), but not inside this call.
    virtual result<frame_link*> connect(std::string_view address) noexcept = 0;
    /// Canonical form of an address, so that two spellings of one peer compare equal.
    virtual result<std::string> canonical(std::string_view address) const noexcept = 0;
    /// Reads and writes without blocking; delivers about `budget` frames at most. Returns how many
    /// frames and completions it processed.
    virtual std::size_t move_frames(std::size_t budget) noexcept = 0;
    /// Arms the wait handle. False: there is already something to read or write.
    virtual bool arm() noexcept = 0;
    /// framed_port no longer uses the link: free it. Called inside progress(), never inside
    /// move_frames(). The transport frees links that still exist when the port is destroyed.
    virtual void release(frame_link&) noexcept = 0;

    /// Transfers memory to memory without the target's help (shm); optional to override. nullopt:
    /// not possible for this key or peer, use frames. Otherwise the transfer is complete with this
    /// status, and the key was checked.
    virtual std::optional<status> direct_put(frame_link&, gather, const remote_key&,
                                             std::uint64_t offset) noexcept;
    virtual std::optional<status> direct_get(frame_link&, scatter, const remote_key&,
                                             std::uint64_t offset) noexcept;
    /// The same for atomic operations, asked only if can().atomics is `native`. `old` is what was
    /// there before.
    virtual std::optional<status> direct_atomic(frame_link&, const remote_key&,
                                                std::uint64_t offset, const atomic_operation&,
                                                std::uint64_t& old) noexcept;
    /// Transfers that the transport's library or device carries out, and may end later; for
    /// transports that start_transfers(). nullopt: use frames, nothing was done. done: it is over,
    /// with `what`. pending: transfer_over(on_done) follows. Never full.
    struct transfer_start {
        posted how = posted::pending;
        status what;
    };
    virtual std::optional<transfer_start> start_put(frame_link&, gather, const remote_key&,
                                                    std::uint64_t offset,
                                                    completion& on_done) noexcept;
    virtual std::optional<transfer_start> start_get(frame_link&, scatter, const remote_key&,
                                                    std::uint64_t offset,
                                                    completion& on_done) noexcept;
    /// Ends such a pending one early: transfer_over() follows, here or later.
    virtual void cancel_transfer(completion&) noexcept {}
    /// The link is down or shut: transfer_over() follows for its pending ones. False: not for all
    /// of them yet; transfers_over() follows, and release() of the link waits for it.
    virtual bool end_transfers(frame_link&, status) noexcept { return true; }
    /// Whether any of them is pending.
    virtual bool has_transfers(const frame_link&) const noexcept { return false; }
    /// A put with a notice that waits for the pending ones, so that it does not overtake them; then
    /// go_on_by_frames(). It ends as they do. Precondition: there is one. False: out of memory.
    virtual bool queue_put_notify(frame_link&, gather, const remote_key&, std::uint64_t /*offset*/,
                                  std::uint64_t /*notice*/, completion&) noexcept {
        return false;
    }
    /// A frame of a kind that framed_port does not know, for transports that take_own_frames().
    virtual delivery deliver_own(frame_link&, const frame_header&, const_bytes) noexcept {
        return delivery::malformed;
    }
    /// For transports with direct transfers: publishes or withdraws a region, which peers check.
    virtual void region_opened(const remote_key&, scatter) noexcept {}
    virtual void region_closed(const remote_key&) noexcept {}

    // ---- from the transport

    /// Runs completions that are due, also those of frames that were moved just now. For the end of
    /// a move_frames(): only its caller's frames are above it, so release() may be called in it.
    std::size_t run_due(std::size_t budget) noexcept {
        return completions_.empty() ? 0 : completions_.run(budget);
    }
    /// The link to that peer; null: unknown or down.
    frame_link* link_to(peer_id who) const noexcept {
        const peer_record* const peer = peers_.find(who);
        return peer == nullptr ? nullptr : peer->link;
    }
    /// A peer connected to us; assigns it an id. `address` is for logs and peer_address(). Failure:
    /// peer_id{} if out of memory; the transport then drops the connection.
    peer_id accepted(frame_link&, std::string address) noexcept;
    /// A whole frame arrived. `payload` may be in the transport's memory and is not used after the
    /// return. Runs user callbacks, which may post, close and cancel.
    delivery deliver(frame_link&, const frame_header&, const_bytes payload) noexcept;
    /// The same for an unexpected message.
    delivery deliver_message(peer_record& from, std::uint64_t tag, const_bytes bytes,
                             buffer* owned = nullptr) noexcept {
        ++from.traffic.received_messages;
        from.traffic.received_bytes += bytes.size();
        // Earlier messages still queued go first.
        if (sink_ == nullptr || !unasked_.empty()) [[unlikely]]
            return keep(from, tag, bytes, owned, kept::unexpected);
        message arrived(from.id, tag, bytes, owned, buffers_);
        sink_->on_message(arrived);
        return from.up() ? delivery::taken : delivery::gone;
    }
    /// A frame too large to buffer whole arrives: `prefix` is its first bytes, at least min(64,
    /// header.bytes) of them. The transport then fills the placement with the rest and calls
    /// end_placement() before it delivers anything else from this link. At most one placement per
    /// link. nullptr: malformed, as the delivery; or the link was shut because there is no memory
    /// or room for the frame. Runs no callbacks.
    placement* begin_placement(frame_link&, const frame_header&, const_bytes prefix) noexcept;
    /// The placement is full but its frame continues: makes room for more, as grow_placements()
    /// promised. False: out of memory or over a limit; the link is ended.
    bool extend_placement(frame_link&) noexcept;
    /// The whole payload was read. Runs callbacks, as deliver() does.
    delivery end_placement(frame_link&) noexcept;
    /// A borrowed payload is no longer in use. Runs callbacks.
    void sent(completion&, status) noexcept;
    /// Borrowed payload memory cannot be read; `begun` tells whether part of its frame was sent.
    /// The operation fails with `invalid`, EFAULT. Runs no callbacks.
    enum class remedy : std::uint8_t {
        leave_out,  ///< Drop the frame, as if never sent.
        blank,      ///< Send zeros for the rest; do not report completion.
        break_off   ///< The frame cannot be repaired: end the connection.
    };
    remedy unreadable(completion&, bool begun) noexcept;
    /// Memory of the open placement cannot be written. The placement discards from now on, and its
    /// operation fails with `invalid`, EFAULT. Runs no callbacks.
    void unwritable(frame_link&) noexcept;
    /// Calls start_put() and start_get() from now on.
    void start_transfers() noexcept { starts_transfers_ = true; }
    /// Takes own frames of up to `frame_bytes`, also those that a packet's end cuts.
    void take_own_frames(std::uint32_t frame_bytes) noexcept { own_frame_bytes_ = frame_bytes; }
    /// Counts a transfer without the target's processor.
    void count_direct(std::uint64_t bytes) noexcept {
        direct_.add();
        direct_bytes_.add(bytes);
    }
    /// How many bytes of such transfers were copied. Any thread.
    virtual std::uint64_t copied_bytes() const noexcept { return 0; }
    /// A transfer that was left pending ended; it completes in run_due(), or the next progress().
    /// Any time.
    void transfer_over(completion&, status, std::size_t bytes) noexcept;
    /// Frames go on with a transfer that was left pending. Not inside an upcall of the library's.
    /// Precondition: the link is up.
    void go_on_by_frames(frame_link&, const rma_rest&, completion&) noexcept;
    /// The last transfer of a link that is down ended. Any time.
    void transfers_over(frame_link&) noexcept;
    /// The region that a key opens, nullptr if none. Valid until the next region opens or closes.
    const region_entry* region_of(const remote_key& key) noexcept {
        return regions_.check(key, 0, 0, key.rights);
    }
    /// A link that returned `full` has room again. Sends queued frames of the port itself.
    void writable(frame_link&) noexcept;
    /// The link is gone. Called once per link, never after shut(). Everything on it completes with
    /// `why` from the next progress() on, then release() is called. Open placements and borrowed
    /// sends are forgotten: no sent() for them. Callable anywhere, even inside send().
    void link_down(frame_link&, status why) noexcept;
    /// Called when the delivery was `pause` and there is room again, from any function of the port.
    /// Only record it: deliver in the next move_frames(), and make prepare_to_sleep() aware.
    virtual void resume(frame_link&) noexcept = 0;

    /// progress() has work that did not come through move_frames(); may be called repeatedly. For
    /// transports that do not call prepare_to_sleep().
    virtual void due() noexcept {}
    /// Whether such work is pending.
    bool has_due() const noexcept {
        return !completions_.empty() || (!unasked_.empty() && sink_ != nullptr);
    }

    /// The sink hears of whatever happens to a peer before anything of the peer is gone: nothing
    /// that it was not told waits. From then on always, while there is a sink.
    bool tells_at_once() const noexcept { return sink_ != nullptr && unasked_.empty(); }

    const port_options& options() const noexcept { return options_; }
    buffer_pool& buffers() noexcept { return buffers_; }
    /// Enables guarded copies for transfers. For transports that pay a system call per frame
    /// anyway.
    /// Failure: throws std::bad_alloc.
    void guard_memory() {
        initiator_.guard_memory();
        target_.guard_memory();
    }
    /// For transports that call extend_placement(): messages longer than this get memory as they
    /// arrive.
    void grow_placements() noexcept { placement_step_ = std::size_t{1} << 20; }
    /// No operation of ours is pending on this link, and nothing from the peer is queued.
    static bool is_idle(const frame_link&) noexcept;
    /// Counts a connection that ended because it exceeded a bound of the transport.
    void count_evicted() noexcept { evicted_.add(); }

private:
    // Calls from the user: framed_port.cpp.
    posted send_message(frame_kind, peer_id, std::uint64_t tag, gather, completion&) noexcept;
    posted put(peer_record&, gather, std::size_t bytes, const remote_key&, std::uint64_t offset,
               completion&) noexcept;
    posted put_notify(peer_record&, gather, const remote_key&, std::uint64_t offset,
                      std::uint64_t notice, completion&) noexcept;
    posted get(peer_record&, scatter, std::size_t bytes, const remote_key&, std::uint64_t offset,
               completion&) noexcept;
    posted lent(peer_record&, completion&, std::size_t size) noexcept;
    posted no_room(peer_record&, completion&) noexcept;
    posted refuse(peer_record*, completion&) noexcept;
    posted complete_later(peer_record*, completion&, status) noexcept;
    posted post_atomic(peer_id, const remote_key&, std::uint64_t offset, const atomic_operation&,
                       std::uint64_t* old, completion&) noexcept;
    bool may_access(const remote_key&, std::uint64_t offset, std::size_t bytes,
                    access) const noexcept;
    posted started(peer_record&, completion&, std::size_t bytes, const transfer_start&) noexcept;
    void close_region(std::uint64_t id) noexcept final;
    std::size_t progress_with_due(std::size_t budget) noexcept;
    static void on_first_due(void* self) noexcept;

    // Arrivals: arrivals.cpp.
    delivery deliver_expected(peer_record&, std::uint64_t tag, const_bytes, buffer*) noexcept;
    enum class kept : std::uint8_t { unexpected, expected, put };
    delivery keep(peer_record&, std::uint64_t tag, const_bytes, buffer*, kept) noexcept;
    delivery tell(peer_record&, const put_notice&) noexcept;
    delivery settle(peer_record&) noexcept;
    std::size_t deliver_unasked(std::size_t budget) noexcept;
    void deliver_notice(peer_record&) noexcept;
    void deliver_early(early_message&) noexcept;
    void unqueued(peer_record&, early_message&) noexcept;
    bool begin_expected(peer_record&, const frame_header&, const_bytes prefix) noexcept;
    bool begin_owned(peer_record&, const frame_header&, const_bytes prefix) noexcept;
    void resume_if_room(peer_record&) noexcept;
    bool must_pause(const peer_record&, std::size_t share) const noexcept;

    // Memory held for peers: bounds.cpp.
    void queue_more(peer_record&, std::size_t bytes) noexcept;
    void queue_less(std::size_t bytes) noexcept;
    void discard(early_message&) noexcept;
    bool take_room(peer_record&, std::size_t bytes) noexcept;
    buffer take_landed(placement_state&) noexcept;
    void leave_room(placement_state&) noexcept;
    void evict_largest() noexcept;
    void give_memory_back() noexcept;

    // How peers end: endings.cpp.
    void end_peer(peer_record&, status why) noexcept final;
    void take_down(peer_record&, status why) noexcept;
    void forget_landing(peer_record&, status why) noexcept;
    void told_down(peer_record&) noexcept;
    bool is_told_later(const peer_record&) const noexcept;
    bool has_unasked(peer_id) const noexcept;
    void drop_unasked(peer_id) noexcept;
    static void on_down(completion& self, status, std::size_t) noexcept;

    const port_options options_;
    const capabilities can_;
    const std::uint64_t incarnation_;
    message_sink* sink_ = nullptr;
    bool ending_ = false;  // Nothing is accepted any more; the sink is not called.
    bool starts_transfers_ = false;
    std::uint32_t own_frame_bytes_ = 0;
    // False in the base destructor, when the transport is gone, and in a child of fork().
    bool links_stand_ = true;
    const fork_check forked_;
    buffer_pool buffers_;
    completion_queue completions_;
    peer_table peers_;
    early_pool early_;
    chain<early_message> unasked_;  // Unexpected messages of all peers that arrived without a sink.
    std::size_t untold_ = 0;        // How many of them are peer-down notices.
    std::size_t placement_step_ = ~std::size_t{0};
    owned_counter queued_bytes_;  // Of all peers: early messages and placements in our memory.
    owned_counter evicted_;
    owned_counter direct_;
    owned_counter direct_bytes_;
    peer_traffic ended_traffic_;      // With peers that are gone.
    bool some_wait_for_all_ = false;  // A link is paused as the port as a whole holds too much.
    bool has_used_much_ = false;      // Since memory was last returned.
    region_table regions_;
    piece_pool pieces_;
    rma_initiator initiator_;
    rma_target target_;
};

}  // namespace amalgam::detail
