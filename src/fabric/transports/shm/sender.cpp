#include "fabric/transports/shm/sender.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "fabric/limits.hpp"
#include "fabric/transports/shm/link.hpp"
#include "fabric/transports/shm/port.hpp"

namespace amalgam::detail {
namespace {

// Records of one large frame before other links get their turn: half a MiB, about 40 us.
constexpr std::size_t records_at_once = 32;

std::size_t next_bytes(const shm_lent& one) noexcept {
    if (one.has_begun()) return std::min(one.left, limits::shm_piece_bytes);
    return one.left <= limits::shm_whole_bytes ? one.left : limits::shm_prefix_bytes;
}

shm_lent& lent_of(const completion& on_sent) noexcept {
    return *reinterpret_cast<shm_lent*>(on_sent.port_words[3]);
}

}  // namespace

void shm_sender::open(const shm_word& reader_sleeps, bool fenced) noexcept {
    reader_sleeps_ = &reader_sleeps;
    always_fenced_ = fenced;
    ring_.set_fenced(fenced);
    ring_.connect(reader_sleeps, &shm_sender::on_reader_changed, this);
    open_ = true;
    update();
}

void shm_sender::drop() noexcept {
    open_ = false;
    ring_.set_open(false);
    blocked_lines_ = 0;
    while (shm_lent* one = waiting_.take_first())
        lent_.give_back(*one);
    waiting_count_ = 0;
}

bool shm_sender::write(const frame_header& header, gather payload, std::size_t bytes) noexcept {
    if (!ring_.write(header, payload, bytes)) return false;
    ring_.tell_reader();
    return true;
}

posted shm_sender::send_other(const frame_header& header, gather payload,
                              completion* on_sent) noexcept {
    if (ring_.is_open() && header.bytes <= limits::shm_whole_bytes &&
        write(header, payload, header.bytes))
        return posted::done;
    return send_slowly(header, payload, on_sent);
}

/// Rings it if it sleeps.
void shm_sender::on_reader_changed(void* self, std::uint64_t now) noexcept {
    auto& me = *static_cast<shm_sender*>(self);
    const std::uint64_t awake = now & shm_registrations_layout::fences;
    if (awake != me.ring_.awake()) {
        me.ring_.set_awake(awake);
        me.ring_.set_fenced(me.always_fenced_ || awake != 0);
        // The record before this check was published without a fence: restore the order of the two.
        std::atomic<bool> any{false};
        any.exchange(true, std::memory_order_seq_cst);
        now = me.reader_sleeps_->load(std::memory_order_seq_cst);
    }
    if ((now & shm_registrations_layout::asleep) != 0 && std::exchange(me.rung_, now) != now)
        me.link_.ring();
}

posted shm_sender::refuse(std::size_t lines) noexcept {
    if (ring_.broken()) {
        link_.fail(shm_broken_rules);
    } else {
        blocked_lines_ = lines;
        link_.push_later();
    }
    return posted::full;
}

shm_lent* shm_sender::keep(const frame_header& header, gather payload,
                           completion* on_sent) noexcept {
    shm_lent* one = waiting_count_ < max_waiting ? lent_.take() : nullptr;
    if (one == nullptr) return nullptr;
    one->header = header;
    one->payload = payload;
    one->left = header.bytes;
    one->on_sent = on_sent;
    if (on_sent != nullptr) {
        on_sent->port_words[3] = reinterpret_cast<std::uintptr_t>(one);
    } else if (!own_bytes(*one)) {  // Small, and its array does not outlive the call.
        lent_.give_back(*one);
        return nullptr;
    }
    return one;
}

posted shm_sender::send_slowly(const frame_header& header, gather payload,
                               completion* on_sent) noexcept {
    const bool whole = header.bytes <= limits::shm_whole_bytes;
    const std::size_t lines = shm_record_lines(whole ? header.bytes : limits::shm_prefix_bytes);
    if (open_ && whole) return refuse(lines);
    shm_lent* const one = keep(header, payload, on_sent);
    if (one == nullptr) return refuse(lines);
    if (ring_.is_open()) {
        if (advance(*one)) {
            lent_.give_back(*one);
            return posted::done;
        }
        if (ring_.broken()) {
            lent_.give_back(*one);
            return refuse(lines);
        }
    }
    waiting_.append(*one);
    ++waiting_count_;
    update();
    link_.push_later();
    return on_sent != nullptr ? posted::pending : posted::done;
}

bool shm_sender::advance(shm_lent& one) noexcept {
    for (std::size_t i = 0; i < records_at_once; ++i) {
        const std::size_t bytes = next_bytes(one);
        const frame_header header =
            one.has_begun() ? header_of(shm_piece_kind, 0, bytes) : one.header;
        if (!ring_.write_some(header, one.payload, one.at, bytes)) return false;
        ring_.tell_reader();
        one.left -= bytes;
        if (one.left == 0) return true;
    }
    return false;
}

std::size_t shm_sender::push(std::size_t budget) noexcept {
    std::size_t ended = 0;
    while (open_ && ended < budget && !waiting_.empty()) {
        shm_lent* const one = waiting_.first();
        if (!advance(*one)) break;
        waiting_.remove(*one);
        --waiting_count_;
        update();
        completion* const on_sent = one->on_sent;
        lent_.give_back(*one);
        if (on_sent == nullptr) continue;
        link_.port().sent(*on_sent, {});
        ++ended;
    }
    if (ring_.broken()) link_.fail(shm_broken_rules);
    if (ring_.is_open() && blocked_lines_ != 0 && ring_.has_room(blocked_lines_)) {
        blocked_lines_ = 0;
        link_.port().room_came();
        link_.port().writable(link_);
    }
    return ended;
}

bool shm_sender::can_push() noexcept {
    if (!open_) return false;
    if (const shm_lent* one = waiting_.first())
        return ring_.has_room(shm_record_lines(next_bytes(*one)));
    return blocked_lines_ != 0 && ring_.has_room(blocked_lines_);
}

bool shm_sender::forget(completion& on_sent) noexcept {
    shm_lent& one = lent_of(on_sent);
    if (one.has_begun()) return false;
    waiting_.remove(one);
    --waiting_count_;
    lent_.give_back(one);
    update();
    return true;
}

bool shm_sender::own_bytes(shm_lent& one) noexcept {
    one.own = link_.port().buffers().try_take(one.left);
    if (one.own.size() != one.left) return false;
    std::byte* to = one.own.data();
    walk(one.payload, one.at, one.left, [&](const_bytes piece) {
        std::memcpy(to, piece.data(), piece.size());
        to += piece.size();
    });
    one.kept = std::as_const(one.own).bytes();
    one.payload = {&one.kept, 1};
    one.at = {};
    return true;
}

void shm_sender::detach(completion& on_sent) noexcept {
    shm_lent& one = lent_of(on_sent);
    one.on_sent = nullptr;
    if (!own_bytes(one)) link_.fail({errc::no_memory});
}

}  // namespace amalgam::detail
