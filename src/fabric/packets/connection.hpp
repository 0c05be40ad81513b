#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include <amalgam/core/buffer.hpp>
#include <amalgam/fabric/identity.hpp>
#include <amalgam/fabric/packets.hpp>

#include "fabric/frames/frame.hpp"
#include "fabric/limits.hpp"
#include "fabric/packets/frame_parser.hpp"
#include "fabric/packets/header.hpp"
#include "fabric/port/send_queue.hpp"
#include "fabric/port/sent_list.hpp"

namespace amalgam::detail {

class packet_port;
struct one_sided_peer;

/// One connection to one peer over a carrier: sends and receives frames in packets.
///
/// Flow control: a sender may have `window` packets of frames outstanding that the other side has
/// not consumed. Credit returns with packets of the other direction, or alone. So a receiver that
/// stops reading holds at most a window, and the carrier's own queues stay short.
///
/// Owner:   the port. Threads: the port's thread.
class packet_connection final : public frame_link, private frame_handler {
public:
    packet_connection(packet_port& home, std::string address);

    // ---- frame_link
    posted send(const frame_header&, gather payload, completion* on_sent) noexcept override;
    bool forget(completion& on_sent) noexcept override { return queue_.forget(on_sent); }
    void detach(completion& on_sent) noexcept override;
    void shut() noexcept override;
    identity who() const override;
    const key_fingerprint* proven_key() const noexcept override;

    // ---- for the port
    /// Call before anything is sent.
    void begin(packet_link& by) noexcept;
    void received(const_bytes bytes) noexcept;
    void room() noexcept { full_ = false; }
    /// The carrier lost the connection.
    void lost() noexcept { over_ = true; }
    /// Sends queued frames, reads held packets, notifies senders.
    void work_off() noexcept;
    /// The handler accepts frames again.
    void go_on() noexcept { paused_ = false; }

    bool is_over() const noexcept { return over_; }
    packet_link* by() const noexcept { return by_; }
    const std::string& address() const noexcept { return address_; }

    bool has_work = false;                ///< In the port's list.
    one_sided_peer* one_sided = nullptr;  ///< The port's; null until it is needed.

private:
    /// Asked for once, as it stays the same.
    mutable std::unique_ptr<const key_fingerprint> proven_;

    delivery on_frame(const frame_header&, const_bytes payload) noexcept override;
    placement* on_large(const frame_header&, const_bytes prefix) noexcept override;
    delivery on_large_end() noexcept override;

    delivery use_budget(delivery found) noexcept;
    bool may_read() const noexcept;
    bool may_send() const noexcept {
        return heard_hello_ && said_hello_ && window_left_ > 0 && !full_ && !over_;
    }
    bool transmit(packet& one, packet_kind kind) noexcept;
    bool transmit_frames(packet& one) noexcept;
    void say_hello() noexcept;
    bool take_hello(const_bytes bytes) noexcept;
    void pump() noexcept;
    void tell_senders() noexcept;
    void take_frames(const_bytes bytes) noexcept;
    void read_held() noexcept;
    void hold(const_bytes bytes) noexcept;
    void used_one() noexcept;
    void return_credit() noexcept;
    void violated() noexcept;
    void down(status why) noexcept;

    packet_port& home_;
    packet_link* by_ = nullptr;
    std::string address_;
    unsigned window_left_ = limits::packet_window;
    unsigned used_ = 0;  ///< The peer's packets for which it has no credit yet.
    bool full_ = false;  ///< The carrier returned full.
    bool said_hello_ = false;
    bool heard_hello_ = false;
    bool paused_ = false;  ///< By the handler.
    bool over_ = false;
    bool was_full_ = false;  ///< A send was refused; writable() is due.
    frame_parser parser_;
    send_queue queue_;
    sent_list sent_;
    std::deque<buffer> held_;    ///< Packets that arrived while paused.
    std::size_t held_used_ = 0;  ///< Bytes consumed of the first.
};

}  // namespace amalgam::detail
