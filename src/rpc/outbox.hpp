#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include <amalgam/core/buffer.hpp>
#include <amalgam/core/counter.hpp>
#include <amalgam/fabric/port.hpp>
#include <amalgam/rpc/detail/call.hpp>
#include <amalgam/rpc/detail/one_way.hpp>
#include <amalgam/tasks/parking.hpp>

#include "rpc/known_peers.hpp"
#include "rpc/self_link.hpp"

namespace amalgam::detail {

/// One who waits until fewer messages are queued for a peer. On its own stack.
struct admission {
    admission() { who.waits_for("room in an rpc queue"); }
    waiter who;
    admission* next = nullptr;
};

/// Where messages leave: through a port, or to the engine itself. What a full port refuses
/// waits here, in order per peer (urgent ones first), and goes out after the port made progress.
///
/// Threads: the engine's stream, but for queued().
class outbox {
public:
    enum class result : std::uint8_t {
        done,     ///< The bytes are the caller's again; its completion will not run.
        pending,  ///< Its completion will run, from flush(), progress or withdraw().
        closed    ///< Nothing was taken, nothing will be.
    };

    /// What a queued answer holds besides its bytes, about: the end of its ULT's stack.
    static constexpr std::size_t answer_overhead_bytes = 4096;

    outbox(buffer_pool& buffers, std::size_t max_queued) noexcept
        : buffers_(buffers), max_queued_(max_queued), self_(buffers) {}

    /// The ports, in the order that peers name them by. Then everything goes to them.
    void open(std::span<const std::unique_ptr<port>> ports);
    /// From here on every result is `closed`; what is queued completes with `closed`.
    void close() noexcept;

    /// Sends `out.pieces` to `there`, behind what is queued for it.
    result send(peer_state& there, outgoing& out) noexcept;
    /// Sends a copy of the pieces, then what `how` adds. What becomes of it is not told: for
    /// messages that nobody waits for. False: nothing was taken, for want of memory or because
    /// this is closed. A little memory is kept, so that where there is none left a short message
    /// can still be sent.
    struct copy_options {
        bool is_answer = false;
        bool urgent = false;
        held_range held{};     ///< Behind the pieces; not copied.
        const_bytes behind{};  ///< Behind those; copied.
        /// Adds one when it did not leave: its peer was lost before, or this was closed.
        owned_counter* counts_loss = nullptr;
    };
    bool send_copy(peer_state& there, std::uint64_t tag, std::initializer_list<const_bytes> pieces,
                   copy_options how) noexcept;
    bool send_copy(peer_state& there, std::uint64_t tag,
                   std::initializer_list<const_bytes> pieces) noexcept {
        return send_copy(there, tag, pieces, {});
    }
    /// Ends the connection to a peer. Its loss is told later, from the port's progress.
    void cut_off(const peer& there) noexcept;
    /// Ends a pending send early, if it is not too late: its completion runs here or later.
    void withdraw(outgoing& out) noexcept;

    /// Sends what is queued for peers of this port as far as it goes.
    void flush(std::uint16_t port) noexcept {
        if (queued() != 0 && !closed_) flush(link_to(port));
    }
    /// What is queued for a peer that is gone completes with `why`.
    void drop(peer_state& gone, status why) noexcept;

    /// True: go on. False: `me` is listed, and unparked when there is room.
    bool admit(peer_state& there, admission& me) noexcept;
    bool must_wait(const peer_state& there) const noexcept { return there.queued >= max_queued_; }

    /// Messages queued for all peers. Any thread.
    std::size_t queued() const noexcept { return queued_.load(std::memory_order_relaxed); }
    /// What the answers among them count for, but for those to ourselves, which always read.
    const owned_counter& unread_bytes() const noexcept { return unread_bytes_; }
    /// Nothing is queued, at a port, or on its way to ourselves.
    bool idle() const noexcept;
    self_link& self() noexcept { return self_; }
    bool is_queued_to_self() const noexcept {
        return !links_.empty() && links_.back().first_queued != nullptr;
    }

private:
    struct link {
        port* where = nullptr;
        peer_state* first_queued = nullptr;
    };

    posted post(const peer& to, outgoing& out) noexcept;
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
    std::vector<link> links_;  // One per port, and at the end one to ourselves.
    self_link self_;
    std::atomic<std::size_t> queued_{0};
    owned_counter unread_bytes_;
    bool closed_ = true;
};

}  // namespace amalgam::detail
