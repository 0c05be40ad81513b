#include "fabric/packets/connection.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include <amalgam/core/log.hpp>

#include "fabric/frames/wire_header.hpp"
#include "fabric/limits.hpp"
#include "fabric/packets/port.hpp"

namespace amalgam::detail {
namespace {

// The rest is left for replies that carry credit anyway.
constexpr unsigned credit_at = limits::packet_window / 2;

}  // namespace

packet_connection::packet_connection(packet_port& home, std::string address)
    : home_(home),
      address_(std::move(address)),
      parser_(limits::max_frame_bytes),
      queue_(home.memory()) {}

void packet_connection::begin(packet_link& by) noexcept {
    by_ = &by;
    by.user = this;
    home_.has_work(*this);
}

identity packet_connection::who() const {
    return by_ == nullptr ? identity{} : home_.proved_by(*by_);
}

const key_fingerprint* packet_connection::proven_key() const noexcept {
    if (proven_ != nullptr) return proven_.get();
    try {
        const identity now = who();
        if (now.kind == identity_kind::certificate)
            proven_ = std::make_unique<const key_fingerprint>(now.key);
    } catch (const std::bad_alloc&) {
        // Then it has proved nothing so far.
    }
    return proven_.get();
}

// ---- sending

posted packet_connection::send(const frame_header& header, gather payload,
                               completion* on_sent) noexcept {
    if (over_) return posted::full;
    const std::size_t bytes = total_bytes(payload);
    const std::size_t room = home_.packets().packet_bytes() - packet_header::wire_bytes;
    const wire_header wire = to_wire(header);
    if (queue_.empty() && may_send() && bytes + wire.size() <= room) {
        packet* one = home_.packets().take();
        if (one != nullptr) {
            std::byte* to = one->data + packet_header::wire_bytes;
            std::memcpy(to, wire.data(), wire.size());
            copy_out(payload, to + wire.size());
            one->bytes =
                static_cast<std::uint32_t>(packet_header::wire_bytes + wire.size() + bytes);
            if (transmit_frames(*one)) return posted::done;
            home_.packets().give_back(*one);
            if (over_) return posted::full;
        }
    }
    // Until the other end has answered, nothing is reported as done that it might never see.
    const bool small = bytes <= limits::max_copy_bytes && (heard_hello_ || on_sent == nullptr);
    const bool kept = small ? queue_.copy(wire, payload) : queue_.lend(wire, payload, *on_sent);
    if (may_send()) home_.has_work(*this);  // Else credit or room triggers it.
    if (!kept) {
        was_full_ = true;
        return posted::full;
    }
    return small ? posted::done : posted::pending;
}

/// False: the carrier did not take it.
bool packet_connection::transmit(packet& one, packet_kind kind) noexcept {
    packet_header{kind, static_cast<std::uint16_t>(used_)}.encode(one.data);
    switch (by_->send(one)) {
        case posted::done:
            home_.packets().give_back(one);
            break;
        case posted::pending:
            break;
        case posted::full:
            full_ = true;
            return false;
    }
    used_ = 0;
    return true;
}

bool packet_connection::transmit_frames(packet& one) noexcept {
    if (!transmit(one, packet_kind::frames)) return false;
    --window_left_;
    return true;
}

void packet_connection::say_hello() noexcept {
    packet* one = home_.packets().take();
    if (one == nullptr) return home_.has_work(*this);
    packet_hello hello;
    hello.packet_bytes = static_cast<std::uint32_t>(home_.packets().packet_bytes());
    hello.incarnation = home_.incarnation();
    hello.encode(one->data + packet_header::wire_bytes);
    one->bytes = packet_header::wire_bytes + packet_hello::wire_bytes;
    said_hello_ = transmit(*one, packet_kind::hello);
    if (!said_hello_) home_.packets().give_back(*one);
}

/// Sends queued frames while the carrier and the window have room.
void packet_connection::pump() noexcept {
    if (!said_hello_ && !full_) say_hello();
    while (may_send() && !queue_.empty()) {
        packet* one = home_.packets().take();
        if (one == nullptr) return home_.has_work(*this);
        std::array<iovec, 64> pieces;
        const std::size_t count = queue_.fill(pieces);
        std::byte* to = one->data + packet_header::wire_bytes;
        std::size_t room = home_.packets().packet_bytes() - packet_header::wire_bytes;
        std::size_t taken = 0;
        for (std::size_t i = 0; i < count && room > 0; ++i) {
            const std::size_t some = std::min(room, pieces[i].iov_len);
            std::memcpy(to + taken, pieces[i].iov_base, some);
            taken += some;
            room -= some;
        }
        one->bytes = static_cast<std::uint32_t>(packet_header::wire_bytes + taken);
        if (!transmit_frames(*one)) return home_.packets().give_back(*one);
        while (taken > 0)
            if (completion* through = queue_.advance(taken)) sent_.push(*through);
    }
}

void packet_connection::tell_senders() noexcept {
    while (home_.budget() > 0 && !sent_.empty() && !over_) {
        home_.used_budget(1);
        home_.sent(sent_.pop(), {});
    }
}

void packet_connection::detach(completion& on_sent) noexcept {
    if (!sent_.forget(on_sent) && !queue_.detach(on_sent)) down({errc::no_memory, ENOMEM});
}

// ---- receiving

void packet_connection::received(const_bytes bytes) noexcept {
    if (over_) return;
    if (bytes.size() < packet_header::wire_bytes) return down({errc::disconnected, EPROTO});
    const packet_header header = packet_header::decode(bytes.data());
    bytes = bytes.subspan(packet_header::wire_bytes);
    window_left_ += header.credit;
    if (header.credit > 0 && (!queue_.empty() || was_full_)) home_.has_work(*this);
    switch (header.kind) {
        [[likely]] case packet_kind::frames
            : if (heard_hello_ && window_left_ <= limits::packet_window) return take_frames(bytes);
        break;
        case packet_kind::credit:
            if (heard_hello_ && window_left_ <= limits::packet_window && bytes.empty()) return;
            break;
        case packet_kind::hello:
            if (!heard_hello_ && take_hello(bytes)) return;
            break;
    }
    if (!over_) violated();
}

void packet_connection::violated() noexcept {
    log(log_level::warn, home_.can().transport, "dropped a peer that violated the protocol",
        {{"peer", address_}});
    down({errc::disconnected, EPROTO});
}

bool packet_connection::take_hello(const_bytes bytes) noexcept {
    packet_hello hello;
    if (!hello.decode(bytes)) return false;
    if (hello.version != packet_hello::current_version ||
        hello.packet_bytes != home_.packets().packet_bytes()) {
        log(log_level::warn, home_.can().transport,
            "dropped a peer with another protocol version or packet size",
            {{"peer", address_},
             {"its_version", hello.version},
             {"our_version", packet_hello::current_version},
             {"its_packet_bytes", hello.packet_bytes},
             {"our_packet_bytes", home_.packets().packet_bytes()}});
        down({errc::mismatch});
        return true;
    }
    heard_hello_ = true;
    home_.has_work(*this);
    return true;
}

void packet_connection::take_frames(const_bytes bytes) noexcept {
    if (!may_read() || !held_.empty()) return hold(bytes);
    switch (parser_.feed(bytes, *this)) {
        case delivery::taken:
            return used_one();
        case delivery::pause:
            return bytes.empty() ? used_one() : hold(bytes);
        case delivery::malformed:
            if (over_) return;  // Ended by us, not its fault.
            return violated();
        case delivery::gone:
            return;
    }
}

/// Keeps the rest of a packet until it may be read. The window bounds how many there are.
void packet_connection::hold(const_bytes bytes) noexcept try {
    if (held_.size() >= limits::packet_window) return violated();
    buffer kept = home_.memory().try_take(std::max<std::size_t>(bytes.size(), 1));
    if (kept.empty()) throw std::bad_alloc();
    if (!bytes.empty()) std::memcpy(kept.data(), bytes.data(), bytes.size());
    kept.resize(bytes.size());
    held_.push_back(std::move(kept));
    if (!paused_) home_.has_work(*this);
} catch (const std::bad_alloc&) {
    down({errc::no_memory, ENOMEM});
}

bool packet_connection::may_read() const noexcept {
    return !paused_ && !over_ && home_.budget() > 0;
}

void packet_connection::read_held() noexcept {
    while (may_read() && !held_.empty()) {
        const const_bytes all = std::as_const(held_.front()).bytes();
        const_bytes rest = all.subspan(held_used_);
        switch (parser_.feed(rest, *this)) {
            case delivery::taken:
                held_.pop_front();
                held_used_ = 0;
                used_one();
                break;
            case delivery::pause:
                held_used_ = all.size() - rest.size();
                break;
            case delivery::malformed:
                down({errc::disconnected, EPROTO});
                break;
            case delivery::gone:
                break;
        }
    }
}

/// Verdict for the parser about a delivered frame.
delivery packet_connection::use_budget(delivery found) noexcept {
    home_.used_budget(1);
    if (found == delivery::pause) paused_ = true;
    return found == delivery::taken && home_.budget() == 0 ? delivery::pause : found;
}

delivery packet_connection::on_frame(const frame_header& header, const_bytes payload) noexcept {
    return use_budget(home_.deliver(*this, header, payload));
}

placement* packet_connection::on_large(const frame_header& header, const_bytes prefix) noexcept {
    return home_.begin_placement(*this, header, prefix);
}

delivery packet_connection::on_large_end() noexcept {
    return use_budget(home_.end_placement(*this));
}

void packet_connection::used_one() noexcept {
    if (++used_ >= credit_at) home_.has_work(*this);
}

void packet_connection::return_credit() noexcept {
    packet* one = home_.packets().take();
    if (one == nullptr) return home_.has_work(*this);
    one->bytes = packet_header::wire_bytes;
    if (!transmit(*one, packet_kind::credit)) home_.packets().give_back(*one);
}

// ---- rounds

void packet_connection::work_off() noexcept {
    tell_senders();
    read_held();
    if (over_) return;
    pump();
    if (over_) return;
    if (used_ >= credit_at && heard_hello_ && said_hello_ && !full_) return_credit();
    if (was_full_ && may_send() && queue_.has_room()) {
        was_full_ = false;
        home_.note_room();
        home_.has_room(*this);
    }
    if (!over_ && (!sent_.empty() || (!paused_ && !held_.empty()))) home_.has_work(*this);
}

void packet_connection::down(status why) noexcept {
    if (std::exchange(over_, true)) return;
    by_->close();
    home_.link_lost(*this, why);
}

void packet_connection::shut() noexcept {
    if (over_) return;
    pump();
    over_ = true;
    by_->close();
}

}  // namespace amalgam::detail
