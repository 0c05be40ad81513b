#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "fabric/frame.hpp"
#include "fabric/segments.hpp"
#include "fabric/transports/shm/pair.hpp"

namespace amalgam::detail {

class shm_link;

/// What comes in on one connection: frames whole, in pieces, or on offer.
///
/// Threads: the port's. Each header is read once, and checked before it is believed; a peer that
/// breaks the rules loses its connection.
class shm_inward {
public:
    shm_inward(shm_link& link, const shm_pair& pair) noexcept
        : link_(link),
          mine_(pair.mine()),
          theirs_(pair.theirs()),
          tray_(pair.inward_tray()),
          ring_(pair.inward()) {}

    /// Whether take() has something to do. Cost: one load of one line of the ring.
    bool ready() const noexcept { return (ring_.ready() || copying_) && open_; }
    /// As ready(), for the last look before falling asleep.
    bool ready_at_last() noexcept {
        look_at_tray();
        return (ring_.ready_at_last() || copying_) && open_;
    }

    /// Takes in at most `budget` records, or one part of a frame on offer; returns how many frames
    /// it handed up. Runs callbacks, after which the link may be over. Precondition: ready().
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

    /// Waits for the sender to bring bytes of its offer: look_at_tray() is needed now and then.
    bool waits_for_tray() const noexcept { return waits_; }
    void look_at_tray() noexcept;

private:
    /// How a large frame arrives.
    struct arrival {
        landing* into = nullptr;  ///< Null: none arrives just now.
        segment_cursor at;        ///< How far it is filled.
        std::size_t left = 0;     ///< Bytes still to come.
    };
    /// Where the bytes of the frame on offer stand.
    struct offer {
        std::uint32_t slot = 0;
        std::size_t bytes = 0;  ///< All of them.
        std::size_t segment_count = 0;
        std::array<const_bytes, shm_offer::max_segments> segments;
        segment_cursor at;
    };

    std::size_t take_other(const frame_header&) noexcept;
    std::size_t follow(verdict what) noexcept;
    std::size_t follow(verdict what, const frame_header& whole) noexcept;
    std::size_t break_off(status why) noexcept;
    bool begin(const frame_header&, const_bytes prefix) noexcept;
    std::size_t take_start(const frame_header&) noexcept;
    std::size_t take_piece(const frame_header&) noexcept;
    std::size_t take_offer(const frame_header&) noexcept;
    std::size_t copy_some() noexcept;
    status copy_part(std::size_t bytes) noexcept;
    void ask() noexcept;
    void empty_tray() noexcept;
    std::size_t end_copy() noexcept;
    void consume(std::size_t bytes) noexcept;
    void update() noexcept { open_ = !paused_ && !waits_; }

    shm_link& link_;
    shm_side& mine_;
    shm_side& theirs_;
    const std::byte* const tray_;
    shm_ring_reader ring_;
    bool open_ = true;
    bool copying_ = false;  // A frame on offer is being copied; the ring waits.
    bool paused_ = false;
    bool waits_ = false;        // For the tray, of which so many were asked for:
    bool tray_filled_ = false;  // It came, and is to be emptied.
    std::uint64_t asked_ = 0;
    arrival arrives_;
    offer offer_;
    std::uint64_t offers_taken_ = 0;
};

}  // namespace amalgam::detail
