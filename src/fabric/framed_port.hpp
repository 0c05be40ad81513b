#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <amalgam/core/buffer.hpp>
#include <amalgam/core/counter.hpp>
#include <amalgam/core/random.hpp>
#include <amalgam/fabric/port.hpp>
#include <amalgam/fabric/transport.hpp>

#include "fabric/chain.hpp"
#include "fabric/frame.hpp"
#include "fabric/matching.hpp"
#include "fabric/operations.hpp"
#include "fabric/peer_table.hpp"
#include "fabric/region_table.hpp"
#include "fabric/rma_initiator.hpp"
#include "fabric/rma_target.hpp"

namespace amalgam::detail {

/// What the native transports share: peers, matching of expected messages, the region table and
/// its checks, put and get carried by frames, exactly-once completion. A transport derives from
/// it and moves frames; it calls the functions marked "from the transport".
///
/// Threads: the port's. Upcalls happen only inside move_frames(), except where noted.
class framed_port : public port, private peer_ender {
public:
    /// Completes what is left with `closed`, without touching links: see end_everything().
    ~framed_port() override;

    const capabilities& can() const noexcept final;
    std::uint64_t incarnation() const noexcept final;
    result<peer_id> lookup(std::string_view address) noexcept final;
    std::string peer_address(peer_id) const final;
    void close(peer_id) noexcept final;
    void set_sink(message_sink*) noexcept final;
    posted post_send(peer_id, std::uint64_t tag, gather, completion&) noexcept final;
    posted post_send_expected(peer_id, std::uint64_t tag, gather, completion&) noexcept final;
    posted post_receive(peer_id, std::uint64_t tag, mutable_bytes, completion&) noexcept final;
    using port::open_region;
    result<region> open_region(scatter, access) noexcept override;
    posted post_put(peer_id, gather, const remote_key&, std::uint64_t, completion&) noexcept final;
    posted post_get(peer_id, scatter, const remote_key&, std::uint64_t, completion&) noexcept final;
    void cancel(completion&) noexcept final;
    std::size_t progress(std::size_t budget) noexcept final;
    bool prepare_to_sleep() noexcept final;  ///< False while completions wait to run; else arm().
    std::size_t open_operations() const noexcept final;
    port_usage usage() const noexcept final;

protected:
    /// `incarnation` is chosen only where runs must repeat themselves.
    framed_port(const port_options& options, capabilities can,
                std::uint64_t incarnation = random_nonzero_u64());
    /// Shuts and releases every link and completes everything with `closed`. The first thing a
    /// transport's destructor does, while its links still stand.
    void end_everything() noexcept;

    // ---- what each transport provides

    /// A new link to this address, connecting or connected. Frames sent before it is up are
    /// taken as `pending` (or copied) up to some bound, then `full`. If reaching it fails:
    /// link_down(unreachable), but not inside this call.
    virtual result<frame_link*> connect(std::string_view address) noexcept = 0;
    /// The form of an address under which two spellings of one peer are the same peer.
    virtual result<std::string> canonical(std::string_view address) const noexcept = 0;
    /// Reads and writes what can be without blocking; delivers about `budget` frames at most.
    /// Returns how many frames or completions it brought about.
    virtual std::size_t move_frames(std::size_t budget) noexcept = 0;
    /// Arms the wait handle; false when there is something to read or write already.
    virtual bool arm() noexcept = 0;
    /// The link is no longer named by framed_port: free it. Called inside progress(), never inside
    /// move_frames(). Links that still live when the port is destroyed are the transport's to free.
    virtual void release(frame_link&) noexcept = 0;

    /// Memory to memory without the target's help (shm). Overridden by transports that can.
    /// nullopt: not possible for this key or peer, carry it by frames instead. Otherwise the
    /// transfer is over, with this status; the key was checked.
    virtual std::optional<status> direct_put(frame_link&, gather, const remote_key&,
                                             std::uint64_t offset) noexcept;
    virtual std::optional<status> direct_get(frame_link&, scatter, const remote_key&,
                                             std::uint64_t offset) noexcept;
    /// For transports with direct transfers: publish, or withdraw, a region for peers to check.
    virtual void region_opened(const remote_key&, scatter) noexcept {}
    virtual void region_closed(const remote_key&) noexcept {}

    // ---- from the transport

    /// A peer connected to us: gives it an id. `address` is for logs and peer_address().
    /// Failure: peer_id{} without memory; the transport then drops the connection.
    peer_id accepted(frame_link&, std::string address) noexcept;
    /// A whole frame has arrived. `payload` may be in the transport's own memory; it is not
    /// needed after the return. Runs callbacks of the user, who may post, close and cancel.
    verdict deliver(frame_link&, const frame_header&, const_bytes payload) noexcept;
    /// A frame too large to hold whole: `prefix` is its first bytes, at least
    /// min(64, header.bytes) of them. The transport then fills the landing with the rest, and
    /// calls end_landing() before it delivers anything else from this link. One at a time per link.
    /// nullptr: malformed, as the verdict; or the link was shut, as there is no memory for it or no
    /// room. Runs no callbacks.
    landing* begin_landing(frame_link&, const frame_header&, const_bytes prefix) noexcept;
    /// The landing is full, and its frame goes on: makes room for more, as it has been promised by
    /// grow_landings(). False: no memory is left for it, or may be taken; the link is ended.
    bool extend_landing(frame_link&) noexcept;
    /// All the payload was read. Runs callbacks, as deliver() does.
    verdict end_landing(frame_link&) noexcept;
    /// A lent payload is no longer needed. Runs callbacks.
    void sent(completion&, status) noexcept;
    /// The memory of a lent payload cannot be read (any more), and `begun` says whether some of its
    /// frame has left. The operation it belongs to fails with `invalid`, EFAULT. Runs no callbacks.
    enum class remedy : std::uint8_t {
        leave_out,  ///< Forget the frame, as if it had never been sent.
        blank,      ///< Send zeros for the rest; nobody waits to be told.
        break_off   ///< The frame cannot be mended: end the connection.
    };
    remedy unreadable(completion&, bool begun) noexcept;
    /// The memory of the open landing cannot be written: it discards from now on, and what it
    /// belongs to fails with `invalid`, EFAULT. Runs no callbacks.
    void unwritable(frame_link&) noexcept;
    /// A link that said `full` has room again. Frames of our own that waited are sent now.
    void writable(frame_link&) noexcept;
    /// The link is gone, once per link, and not after shut(). Everything on it completes with `why`
    /// from the next progress() on; then release() is called. Open landings and lent sends are
    /// forgotten: no sent() for them any more. May be called anywhere, also inside send().
    void link_down(frame_link&, status why) noexcept;
    /// Called when the verdict was `pause` and there is room again, from any function of the port:
    /// only note it; deliver in the next move_frames(), and see that prepare_to_sleep() knows.
    virtual void resume(frame_link&) noexcept = 0;

    /// progress() has something to do that did not come through move_frames(); may be called again
    /// and again. For transports that do not ask prepare_to_sleep().
    virtual void due() noexcept {}
    /// Some such thing waits now.
    bool has_due() const noexcept {
        return !completions_.empty() || (!unasked_.empty() && sink_ != nullptr);
    }

    const port_options& options() const noexcept { return options_; }
    buffer_pool& buffers() noexcept { return buffers_; }
    /// Each frame costs this transport a system call, so transfers can afford guarded copies.
    /// Failure: throws std::bad_alloc.
    void guard_memory() {
        initiator_.guard_memory();
        target_.guard_memory();
    }
    /// The transport calls extend_landing(): messages longer than this get memory as they arrive.
    void grow_landings() noexcept { landing_step_ = std::size_t{1} << 20; }
    /// Nothing of ours is under way on this link, and nothing of the peer's waits.
    static bool is_idle(const frame_link&) noexcept;
    /// A connection was ended since a bound of the transport's own was passed.
    void count_evicted() noexcept { evicted_.add(); }

private:
    // What callers ask for: framed_port.cpp.
    posted send_message(frame_kind, peer_id, std::uint64_t tag, gather, completion&) noexcept;
    posted lent(peer_record&, completion&, std::size_t size) noexcept;
    posted no_room(peer_record&, completion&) noexcept;
    posted refuse(peer_record*, completion&) noexcept;
    posted complete_later(peer_record*, completion&, status) noexcept;
    bool may_access(const remote_key&, std::uint64_t offset, std::size_t bytes,
                    access) const noexcept;
    void close_region(std::uint64_t id) noexcept final;
    static void on_first_due(void* self) noexcept;

    // What arrives: framed_port_arrivals.cpp.
    verdict deliver_unexpected(peer_record&, std::uint64_t tag, const_bytes, buffer*) noexcept;
    verdict deliver_expected(peer_record&, std::uint64_t tag, const_bytes, buffer*) noexcept;
    verdict keep(peer_record&, std::uint64_t tag, const_bytes, buffer*, bool expected) noexcept;
    verdict settle(peer_record&) noexcept;
    std::size_t deliver_unasked(std::size_t budget) noexcept;
    void deliver_notice(peer_record&) noexcept;
    void deliver_early(early_message&) noexcept;
    void unqueued(peer_record&, early_message&) noexcept;
    bool begin_expected(peer_record&, const frame_header&, const_bytes prefix) noexcept;
    bool begin_owned(peer_record&, const frame_header&, const_bytes prefix) noexcept;
    void resume_if_room(peer_record&) noexcept;
    bool must_pause(const peer_record&, std::size_t share) const noexcept;

    // What is held for peers: framed_port_bounds.cpp.
    void queue_more(peer_record&, std::size_t bytes) noexcept;
    void queue_less(std::size_t bytes) noexcept;
    void discard(early_message&) noexcept;
    bool take_room(peer_record&, std::size_t bytes) noexcept;
    buffer take_landed(landing_state&) noexcept;
    void leave_room(landing_state&) noexcept;
    void evict_largest() noexcept;
    void give_memory_back() noexcept;

    // How peers end: framed_port_endings.cpp.
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
    bool ending_ = false;      // Nothing is taken any more; the sink is not called.
    bool links_stand_ = true;  // False in the last destructor, when the transport is gone.
    buffer_pool buffers_;
    completion_queue completions_;
    peer_table peers_;
    early_pool early_;
    chain<early_message> unasked_;  // Unexpected messages that found no sink, of all peers.
    std::size_t untold_ = 0;        // Those of them that say that a peer is down.
    std::size_t landing_step_ = ~std::size_t{0};
    owned_counter queued_bytes_;  // Of all peers: early messages, and landings in memory of ours.
    owned_counter evicted_;
    bool some_wait_for_all_ = false;  // A link is paused since the port as a whole holds too much.
    bool has_used_much_ = false;      // Since memory was last given back.
    region_table regions_;
    piece_pool pieces_;
    rma_initiator initiator_;
    rma_target target_;
};

}  // namespace amalgam::detail
