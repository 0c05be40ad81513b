#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "fabric/limits.hpp"
#include "fabric/transports/shm/memory/lent.hpp"
#include "fabric/transports/shm/pair.hpp"

namespace amalgam::detail {

class shm_link;

/// Sending half of one connection.
///
/// A payload of up to limits::shm_whole_bytes is copied to the ring or refused. A longer one stays
/// with its sender, and goes through the ring in pieces as space appears. Frames leave in posting
/// order.
///
/// Threads: the port's thread.
/// Cost:    a short frame is one copy, one store and two loads that stay in the cache.
class shm_sender {
public:
    /// Limit of frames that wait for the connection or for their turn.
    static constexpr std::size_t max_waiting = 1024;

    shm_sender(shm_link& link, const shm_pair& pair, shm_lent_pool& lent) noexcept
        : link_(link), lent_(lent), ring_(pair.sender()) {}
    ~shm_sender() { drop(); }
    shm_sender(const shm_sender&) = delete;

    /// The connection is up. `reader_sleeps`: see shm_registrations_layout. `fenced`: see
    /// shm_ring_writer; if false, fences are used when the reader wants them.
    void open(const shm_word& reader_sleeps, bool fenced) noexcept;
    /// The connection is over: borrowed frames are forgotten.
    void drop() noexcept;

    /// As frame_link::send, forget and detach.
    posted send(const frame_header& header, gather payload, completion* on_sent) noexcept {
        if (header.kind != frame_kind::unexpected || payload.size() != 1 ||
            !takes_short(payload.front())) [[unlikely]]
            return send_other(header, payload, on_sent);
        std::byte* const room = ring_.room();
        short_lane::copy(room, payload.front());
        ring_.transmit(room, header.tag, payload.front().size());
        return posted::done;
    }
    /// Whether send_short() would take it. False: send() may.
    bool takes_short(const_bytes payload) noexcept {
        return payload.size() <= short_lane::max_bytes && ring_.room() != nullptr;
    }
    /// Counts the message, as who calls a link's send() would.
    posted send_short(std::uint64_t tag, const_bytes payload) noexcept {
        std::byte* const room = ring_.room();
        short_lane::copy(room, payload);
        ring_.send(room, tag, payload.size());
        return posted::done;
    }
    /// For whoever has short messages only.
    short_lane& lane() noexcept { return ring_; }
    /// Adds those that were counted here.
    void add_traffic(peer_traffic& to) const noexcept { ring_.add_traffic(to); }
    bool forget(completion& on_sent) noexcept;
    void detach(completion& on_sent) noexcept;

    /// Makes progress on queued frames; completes at most `budget`. Runs callbacks, after which the
    /// link may be over. Returns how many completed.
    std::size_t push(std::size_t budget) noexcept;
    /// Whether push() must be called regularly.
    bool has_work() const noexcept { return blocked_lines_ != 0 || !waiting_.empty(); }
    /// Whether push() would do something; sees what a sleeping reader could miss.
    bool can_push() noexcept;

private:
    bool write(const frame_header& header, gather payload, std::size_t bytes) noexcept;
    /// The reader's word has changed, or it sleeps: see short_lane.
    static void on_reader_changed(void* self, std::uint64_t now) noexcept;
    posted send_other(const frame_header&, gather payload, completion* on_sent) noexcept;
    posted send_slowly(const frame_header&, gather payload, completion* on_sent) noexcept;
    posted refuse(std::size_t lines) noexcept;
    shm_lent* keep(const frame_header&, gather payload, completion* on_sent) noexcept;
    /// Puts the next records of that frame into the ring. True: all of it is there.
    bool advance(shm_lent& one) noexcept;
    bool own_bytes(shm_lent& one) noexcept;
    void update() noexcept { ring_.set_open(open_ && waiting_.empty()); }

    shm_link& link_;
    shm_lent_pool& lent_;
    shm_ring_writer ring_;
    const shm_word* reader_sleeps_ = nullptr;
    bool always_fenced_ = true;
    std::uint64_t rung_ = 0;  // The last sleep for which we rang.
    bool open_ = false;
    std::size_t blocked_lines_ = 0;  // Lines needed by the last refused frame; 0: none.
    std::size_t waiting_count_ = 0;
    chain<shm_lent> waiting_;
};

}  // namespace amalgam::detail
