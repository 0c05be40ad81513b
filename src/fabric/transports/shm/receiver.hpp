#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "fabric/frames/frame.hpp"
#include "fabric/memory/segments.hpp"
#include "fabric/transports/shm/pair.hpp"

namespace amalgam::detail {

class shm_link;

/// Receiving half of one connection: frames arrive whole, in pieces, or as rendezvous offers.
///
/// Threads: the port's thread. Each header is read once and checked before use. A peer that
///          violates the protocol loses its connection.
class shm_receiver {
public:
    shm_receiver(shm_link& link, const shm_pair& pair) noexcept
        : link_(link),
          mine_(pair.mine()),
          theirs_(pair.theirs()),
          bounce_(pair.bounce_in()),
          ring_(pair.receiver()) {}

    /// Whether take() has work. Cost: one load of one line of the ring.
    bool ready() const noexcept { return (ring_.ready() || copying_) && open_; }
    /// As ready(), for the final check before sleeping.
    bool ready_at_last() noexcept {
        poll_bounce_buffer();
        return (ring_.ready_at_last() || copying_) && open_;
    }

    /// Takes at most `budget` records, or one part of an offered frame; returns how many frames it
    /// delivered. Runs callbacks, after which the link may be over. Precondition: ready().
    std::size_t take(std::size_t budget) noexcept;

    /// ready() is false until resume().
    void pause() noexcept {
        paused_ = true;
        update();
    }
    void resume() noexcept {
        paused_ = false;
        update();
    }

    /// Waits for the sender to fill the bounce buffer for its offer: call poll_bounce_buffer()
    /// regularly.
    bool waits_for_bounce_buffer() const noexcept { return waits_; }
    void poll_bounce_buffer() noexcept;

private:
    /// A large frame being received.
    struct arrival {
        placement* into = nullptr;  ///< Null: none at the moment.
        segment_cursor at;          ///< Position reached.
        std::size_t left = 0;       ///< Bytes not received yet.
    };
    /// Where the bytes of the offered frame are.
    struct offer {
        std::uint32_t slot = 0;
        std::size_t bytes = 0;  ///< In total.
        std::size_t segment_count = 0;
        std::array<const_bytes, shm_offer::max_segments> segments;
        segment_cursor at;
    };

    std::size_t take_other(const frame_header&) noexcept;
    std::size_t follow(delivery what) noexcept;
    std::size_t follow(delivery what, const frame_header& whole) noexcept;
    std::size_t break_off(status why) noexcept;
    bool begin(const frame_header&, const_bytes prefix) noexcept;
    std::size_t take_start(const frame_header&) noexcept;
    std::size_t take_piece(const frame_header&) noexcept;
    std::size_t take_offer(const frame_header&) noexcept;
    std::size_t copy_some() noexcept;
    status copy_part(std::size_t bytes) noexcept;
    void ask() noexcept;
    void empty_bounce_buffer() noexcept;
    std::size_t end_copy() noexcept;
    void consume(std::size_t bytes) noexcept;
    void update() noexcept { open_ = !paused_ && !waits_; }

    shm_link& link_;
    shm_side& mine_;
    shm_side& theirs_;
    const std::byte* const bounce_;
    shm_ring_reader ring_;
    bool open_ = true;
    bool copying_ = false;  // An offered frame is being copied; the ring waits.
    bool paused_ = false;
    bool waits_ = false;          // For the bounce buffer; requested fills:
    bool bounce_filled_ = false;  // It was filled and must be emptied.
    std::uint64_t asked_ = 0;
    arrival arrives_;
    offer offer_;
    std::uint64_t offers_taken_ = 0;
};

}  // namespace amalgam::detail
