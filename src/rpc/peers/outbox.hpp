#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include <amalgam/core/buffer.hpp>
#include <amalgam/core/counter.hpp>
#include <amalgam/fabric/extension/short_lane.hpp>
#include <amalgam/fabric/port.hpp>
#include <amalgam/rpc/detail/one_way.hpp>
#include <amalgam/tasks/parking.hpp>

#include "rpc/peers/known_peers.hpp"
#include "rpc/peers/outgoing.hpp"
#include "rpc/peers/self_link.hpp"

namespace amalgam::detail {

/// A caller waiting for a peer's queue to shrink. On its own stack.
struct admission {
    admission() { who.waits_for("room in an rpc queue"); }
    waiter who;
    admission* next = nullptr;
};

struct copied_message;

/// Sends messages through a port, or to the engine itself. Messages refused by a full port queue
/// here, in order per peer (urgent ones first), and are sent once the port has made progress.
///
/// Threads: the engine's stream, except queued() and the sizes.
class outbox {
public:
    enum class result : std::uint8_t {
        done,     ///< The bytes are the caller's again; the completion will not run.
        pending,  ///< The completion will run, from flush(), progress or withdraw().
        closed    ///< Nothing was sent, and nothing will be.
    };

    /// Approximate memory of a queued answer besides its bytes: the end of its ULT's stack.
    static constexpr std::size_t answer_overhead_bytes = 4096;

    outbox(buffer_pool& buffers, std::size_t max_queued) noexcept
        : buffers_(buffers), max_queued_(max_queued), self_(buffers) {}
    ~outbox();
    outbox(const outbox&) = delete;

    /// Sets the ports, in the order of their indices, and opens the outbox.
    void open(std::span<const std::unique_ptr<port>> ports);
    /// Of one message to this peer.
    std::size_t max_message_bytes(const peer& there) const noexcept {
        return there.port() < limits_.size() ? limits_[there.port()]
                                             : std::numeric_limits<std::size_t>::max();
    }
    /// Eager limit: larger values go by rendezvous.
    std::size_t eager_bytes(const peer& there) const noexcept {
        return there.port() < eager_.size() ? eager_[there.port()]
                                            : std::numeric_limits<std::size_t>::max();
    }
    /// From here on every result is `closed`; queued messages complete with `closed`.
    void close() noexcept;

    /// The first message came from this peer.
    void heard_from(peer_state& there) noexcept;

    /// Sends `out.pieces` to `there`, behind what is queued for it.
    result send(peer_state& there, outgoing& out) noexcept;
    /// Posts one piece of at most `there.at_once_bytes`, which `out` need not have. Unless it says
    /// `done`, not_done() must follow. Precondition: not closed.
    posted post_short(peer_state& there, std::uint64_t tag, const_bytes whole,
                      outgoing& out) noexcept {
        return there.way->post_send(there.name.id(), tag, gather(&whole, 1), out);
    }
    /// What must follow if post_short() does not say `done`.
    void not_done(peer_state& there, std::uint64_t tag, const_bytes whole, outgoing& out,
                  posted how) noexcept;
    /// Sends a copy of the pieces, followed by what `how` adds, without reporting the outcome.
    /// False: nothing was taken; out of memory or closed. A small reserve lets short messages be
    /// sent even when out of memory.
    /// Cost: no copy of ours if a connected port takes a short message at once.
    struct copy_options {
        bool is_answer = false;
        bool urgent = false;
        held_range held{};     ///< Follows the pieces; not copied.
        const_bytes behind{};  ///< Follows those; copied.
        /// Incremented if the message was not sent: peer lost before, or closed.
        owned_counter* counts_loss = nullptr;
    };
    bool send_copy(peer_state& there, std::uint64_t tag, std::initializer_list<const_bytes> pieces,
                   copy_options how) noexcept;
    bool send_copy(peer_state& there, std::uint64_t tag,
                   std::initializer_list<const_bytes> pieces) noexcept {
        return send_copy(there, tag, pieces, {});
    }
    /// Where a message of up to short_lane::max_bytes to this peer is written, for
    /// `there.lane->send()`; null: one of the other functions sends it.
    std::byte* room_for(peer_state& there) const noexcept {
        return there.lane != nullptr && !closed_ ? there.lane->room() : nullptr;
    }
    /// Sends one short piece whose outcome nobody needs, if the port copies it now. False: nothing
    /// was sent. `counts_loss`: see copy_options.
    /// Cost: no copy of ours.
    bool send_now(peer_state& there, std::uint64_t tag, const_bytes whole,
                  owned_counter* counts_loss = nullptr) noexcept;
    /// Disconnects a peer. The loss is reported later, from the port's progress.
    void cut_off(const peer& there) noexcept;
    /// There was no memory to answer the peer, which waits: ends the connection instead. Not for
    /// calls to ourselves.
    void end_untold(const peer_state& there) noexcept;
    /// The same for one that is not known yet.
    void end_untold(std::uint16_t port, peer_id who) noexcept;
    /// How many connections ended so.
    const owned_counter& untold() const noexcept { return untold_; }
    /// Tries to end a pending send early: its completion runs here or later.
    void withdraw(outgoing& out) noexcept;

    /// Sends as much as possible of what is queued for peers of this port.
    void flush(std::uint16_t port) noexcept {
        if (queued() != 0 && !closed_) flush(link_to(port));
    }
    /// Completes everything queued for a lost peer with `why`.
    void drop(peer_state& gone, status why) noexcept;

    /// True: proceed. False: `me` is queued, and unparked when there is room.
    bool admit(peer_state& there, admission& me) noexcept;
    bool must_wait(const peer_state& there) const noexcept { return there.queued >= max_queued_; }

    /// Messages queued for all peers. Any thread.
    std::size_t queued() const noexcept { return queued_.load(std::memory_order_relaxed); }
    /// Bytes counted for queued answers, except those to ourselves.
    const owned_counter& unread_bytes() const noexcept { return unread_bytes_; }
    /// Posts to this port that found no room, and are tried again.
    std::uint64_t retries(std::size_t port) const noexcept { return links_[port].retries; }
    /// Nothing is queued, at a port, or in flight to ourselves.
    bool idle() const noexcept;
    self_link& self() noexcept { return self_; }
    bool is_queued_to_self() const noexcept {
        return !links_.empty() && links_.back().first_queued != nullptr;
    }

private:
    struct link {
        port* where = nullptr;
        peer_state* first_queued = nullptr;
        short_lanes* lanes = nullptr;  // Null: the port has none.
        std::uint64_t retries = 0;
    };

    posted post(const peer& to, outgoing& out) noexcept;
    bool post_at_once(peer_state& there, std::uint64_t tag,
                      std::initializer_list<const_bytes> pieces, const copy_options& how) noexcept;
    bool make_unused() noexcept;
    copied_message* make_copy(std::size_t bytes, const copy_options& how) noexcept;
    link& link_to(std::uint16_t port) noexcept;
    void append(peer_state& there, outgoing& out) noexcept;
    void count_unread(peer_state& there, const outgoing& out, bool more) noexcept;
    void unlink(peer_state& there, outgoing& out) noexcept;
    void flush(link& through) noexcept;
    void release(peer_state& there) noexcept;

    static constexpr std::size_t spare_bytes = 512;

    void fill_spare() noexcept;
    buffer take_spare(std::size_t bytes) noexcept;

    buffer_pool& buffers_;
    buffer spare_;
    std::size_t max_queued_;
    std::vector<link> links_;           // One per port, then one to ourselves.
    std::vector<std::size_t> limits_;   // max_message_bytes per port.
    std::vector<std::size_t> eager_;    // eager_bytes per port.
    std::vector<std::size_t> inline_;   // inline_bytes per port.
    std::vector<std::size_t> short_;    // The lower of these two.
    copied_message* unused_ = nullptr;  // Without bytes, for the next message sent without a copy.
    self_link self_;
    std::atomic<std::size_t> queued_{0};
    owned_counter unread_bytes_;
    owned_counter untold_;
    bool closed_ = true;
};

}  // namespace amalgam::detail
