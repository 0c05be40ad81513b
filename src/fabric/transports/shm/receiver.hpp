#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include <amalgam/fabric/extension/port_work.hpp>

#include "fabric/frames/frame.hpp"
#include "fabric/limits.hpp"
#include "fabric/memory/segments.hpp"
#include "fabric/transports/shm/pair.hpp"

namespace amalgam::detail {

class shm_link;

/// Receiving half of one connection: frames arrive whole or in pieces.
///
/// Threads: the port's thread. Each header is read once and checked before use. A peer that
///          violates the protocol loses its connection. Payloads are used in place, except after
///          copy_all().
class shm_receiver {
public:
    shm_receiver(shm_link& link, const shm_pair& pair) noexcept
        : link_(link), ring_(pair.receiver()) {}

    /// Whether take() has work. Cost: one load of one line of the ring.
    bool ready() const noexcept { return ring_.ready() && !paused_; }
    /// As ready(), for the final check before sleeping.
    bool ready_at_last() const noexcept { return ring_.ready_at_last() && !paused_; }

    /// Takes at most `budget` records; returns how many frames it delivered. Runs callbacks, after
    /// which the link may be over. Precondition: ready().
    std::size_t take(std::size_t budget) noexcept;

    /// From a peer of another user, who may change what was read: copies each record before
    /// anybody looks at it. False: out of memory.
    bool copy_all() noexcept;

    /// ready() is false until resume().
    void pause() noexcept;
    void resume() noexcept;
    bool paused() const noexcept { return paused_; }
    /// What ready() looks at, unless it is paused(). Valid as long as this.
    const port_work::next_message& next() const noexcept { return ring_.next(); }

private:
    /// A large frame being received.
    struct arrival {
        placement* into = nullptr;  ///< Null, or `nowhere` of the copy: none at the moment.
        segment_cursor at;          ///< Position reached.
        std::size_t left = 0;       ///< Bytes not received yet.
    };

    /// Where records are copied to. `nowhere` keeps take() from using them in place, at no cost.
    struct private_copy {
        placement nowhere;
        std::array<std::byte, limits::shm_whole_bytes> bytes;
    };

    placement* none() noexcept { return copy_ == nullptr ? nullptr : &copy_->nowhere; }
    const_bytes payload(std::size_t bytes) noexcept;
    struct taken_frame {
        std::size_t count = 0;  ///< 0 for a piece.
        bool is_last = false;   ///< Nothing more is to be taken now.
    };
    taken_frame take_any(const std::byte* record) noexcept;
    std::size_t take_other(const frame_header&) noexcept;
    std::size_t take_copy(const frame_header&) noexcept;
    std::size_t follow(delivery what) noexcept;
    std::size_t follow(delivery what, const frame_header& whole) noexcept;
    std::size_t break_rules() noexcept;
    std::size_t take_start(const frame_header&) noexcept;
    std::size_t take_piece(const frame_header&) noexcept;
    void consume(std::size_t bytes) noexcept;

    shm_link& link_;
    shm_ring_reader ring_;
    bool paused_ = false;
    arrival arrives_;
    std::unique_ptr<private_copy> copy_;
};

}  // namespace amalgam::detail
