#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "fabric/frames/frame.hpp"
#include "fabric/port/send_queue.hpp"
#include "fabric/port/sent_list.hpp"
#include "fabric/sockets/poller.hpp"
#include "fabric/sockets/silence.hpp"
#include "fabric/transports/tcp/deadlines.hpp"
#include "fabric/transports/tcp/frame_reader.hpp"
#include "fabric/transports/tcp/handshake.hpp"

namespace amalgam::detail {

class tcp_port;

/// One TCP connection to one peer: sends and receives frames.
///
/// A posted frame goes to the socket at once if nothing is queued before it. From the second small
/// frame within one round of the port, frames are gathered and leave together in the next round;
/// after a round with several, already from the first. What the socket does not accept stays
/// queued.
///
///     entering -> up -> over            over: link_down() or shut() was called
///                  |-> broken -> over   broken: a write failed; data received before is still read
///
/// Owner:   the port. When idle, holds no buffers.
/// Threads: the port's thread.
class connection final : public frame_link,
                         public event_source,
                         public timed,
                         private frame_handler {
public:
    /// `address` is what peer_address() shows.
    connection(tcp_port& home, std::string address);
    ~connection();

    // ---- frame_link
    posted send(const frame_header&, gather payload, completion* on_sent) noexcept override;
    bool forget(completion& on_sent) noexcept override { return queue_.forget(on_sent); }
    void detach(completion& on_sent) noexcept override;
    void shut() noexcept override;
    identity who() const override;
    const key_fingerprint* proven_key() const noexcept override;

    // ---- event_source, timed
    void ready(std::uint32_t events) noexcept override;
    void due(clock::time_point now) noexcept override;

    // ---- connecting
    void begin(std::unique_ptr<handshake> way_in) noexcept;
    handshake& way_in() noexcept { return *handshake_; }
    bool entering() const noexcept { return phase_ == phase::entering; }
    /// Acts on the handshake's state: nothing yet, up, or handed to the port as failed.
    void follow(handshake::state outcome) noexcept;

    // ---- for the port's rounds
    /// Reads and delivers at most `budget` frames; returns how many.
    std::size_t read(std::size_t budget) noexcept;
    /// Writes gathered frames, reports to at most `budget` senders that their bytes were sent, and
    /// tells the port about new room. Returns how many senders.
    std::size_t work_off(std::size_t budget) noexcept;
    /// The handler accepts frames again.
    void go_on() noexcept;
    /// It is left to the poller: gives back what only a busy connection needs.
    void rest() noexcept {
        if (tls_ != nullptr) tls_->rest();
    }
    /// Ends the connection; its operations fail with `why`.
    void down(status why) noexcept;

    /// See export_tls_key().
    bool export_key(std::string_view label, const_bytes context,
                    mutable_bytes into) const noexcept {
        return tls_ != nullptr && tls_->export_key(label, context, into);
    }

    const std::string& address() const noexcept { return address_; }
    bool is_up() const noexcept { return phase_ == phase::up; }
    /// There may be something to read, and reading is allowed.
    bool is_readable() const noexcept { return readable_ && !paused_ && can_read(); }
    /// It has sent a frame since its hello.
    bool is_proven() const noexcept { return frames_read_ > 0; }
    /// How long nothing was received or sent, according to the kernel.
    std::chrono::milliseconds idle_for() const noexcept;
    /// Checks that a frame that has begun continues; called this many times per frame limit.
    /// Returns whether a frame is in progress. Ends the connection if it made no progress for so
    /// many calls.
    static constexpr unsigned frame_checks = 4;
    bool check_frame() noexcept;
    /// Consecutive reads that found nothing.
    unsigned fruitless() const noexcept { return fruitless_; }

    std::size_t index = 0;     ///< Position in the port's list.
    bool is_active = false;    ///< In the port's list of connections to read.
    bool has_work = false;     ///< In the port's list of connections with work.
    bool is_stranger = false;  ///< Counted by the reception: handshake pending.
    bool is_evicted = false;   ///< A former stranger, no longer counted.
    bool came_to_us = false;   ///< It was accepted.

private:
    /// May be sent without checking for acknowledgement; less than any window a peer would shut.
    static constexpr std::size_t trusted_bytes = 16384;

    static constexpr std::size_t as_queued = ~std::size_t{0};

    enum class phase : std::uint8_t { entering, up, broken, over };

    /// Result of one write call.
    struct written {
        std::size_t offered = 0;
        std::size_t sent = 0;
        int error = 0;  ///< 0: the rest, if any, found no room.
    };

    delivery on_frame(const frame_header&, const_bytes payload) noexcept override;
    placement* on_large(const frame_header&, const_bytes prefix) noexcept override;
    delivery on_large_end() noexcept override;
    bool on_large_full() noexcept override;

    bool can_read() const noexcept { return phase_ == phase::up || phase_ == phase::broken; }
    posted write_or_queue(const wire_header&, gather payload, completion* on_sent,
                          std::size_t bytes) noexcept;
    posted enqueue(const wire_header&, gather payload, completion* on_sent, bool small) noexcept;
    bool flush(const completion* posting) noexcept;
    /// The first `ours` pieces are not users' memory; by default as the queue knows.
    written write(std::span<iovec> what, std::size_t ours = as_queued) noexcept;
    written write_plain(std::span<iovec> what) noexcept;
    written seal(std::span<iovec> what, std::size_t ours) noexcept;
    ssize_t unseal(std::span<iovec> into) noexcept;
    bool pass_unreadable() noexcept;
    bool settle(std::size_t bytes, const completion* posting) noexcept;
    void wait_for_room() noexcept;
    void try_again() noexcept;
    void break_off(int error) noexcept;
    frame_reader::state read_some(std::size_t& budget, bool& drained) noexcept;
    void close_socket() noexcept;
    void end_session() noexcept;
    void set_deadline(clock::time_point when) noexcept;
    void drop_deadline() noexcept;
    void watch_sent(std::size_t bytes) noexcept;
    void check_sender(clock::time_point now) noexcept;

    tcp_port& home_;
    unique_fd socket_;
    std::unique_ptr<tls_session> tls_;  ///< Null without TLS.
    phase phase_ = phase::entering;
    bool readable_ = false;        ///< An edge arrived, and the socket was not read empty since.
    bool ended_ = false;           ///< The peer closed its side: read until end of stream.
    bool held_ = false;            ///< The reader holds frames it could not deliver.
    bool paused_ = false;          ///< By the handler.
    bool blocked_ = false;         ///< The socket is full; an event will follow. With TLS also
                                   ///< while ciphertext waits and the queue is empty.
    bool awaits_room_ = false;     ///< The poller watches for room.
    bool was_full_ = false;        ///< A send was refused; writable() is due.
    bool watched_ = false;         ///< check_sender() is scheduled.
    bool met_bad_memory_ = false;  ///< Some memory was unreadable; reset when queue empties.
    unsigned fruitless_ = 0;
    unsigned stuck_checks_ = 0;  ///< In a row, without progress of the current frame.
    std::uint64_t frames_read_ = 0;
    std::uint64_t bytes_read_ = 0;
    std::uint64_t frames_at_check_ = 0;
    std::uint64_t bytes_at_check_ = 0;
    int broken_by_ = 0;               ///< errno.
    std::uint64_t last_round_ = 0;    ///< The last in which a frame was sent.
    unsigned sent_in_round_ = 0;      ///< Frames.
    bool crowded_ = false;            ///< The round before had several frames.
    std::size_t unproven_bytes_ = 0;  ///< Sent since everything was known to be acknowledged.
    sender_watch sender_;             ///< While watched_.
    frame_reader reader_;
    send_queue queue_;
    sent_list sent_;
    std::unique_ptr<handshake> handshake_;
    clock::time_point deadline_{};  ///< As registered with the port's deadlines; epoch: none.
    std::string address_;
};

}  // namespace amalgam::detail
