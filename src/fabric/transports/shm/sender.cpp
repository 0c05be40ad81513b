#include "fabric/transports/shm/sender.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "fabric/limits.hpp"
#include "fabric/transports/shm/link.hpp"
#include "fabric/transports/shm/port.hpp"

namespace amalgam::detail {
namespace {

// Below this size, copying through the ring is faster than a system call of the reader: two cores
// copy at once, and no pages are looked up.
constexpr std::size_t offer_from_bytes = std::size_t{128} << 10;

// Lines of the longest offer.
constexpr std::size_t offer_lines =
    shm_record_lines(sizeof(shm_offer) + shm_offer::max_segments * sizeof(shm_foreign_range));

shm_lent& lent_of(const completion& on_sent) noexcept {
    return *reinterpret_cast<shm_lent*>(on_sent.port_words[3]);
}

}  // namespace

void shm_sender::open(const shm_word& reader_sleeps, bool fenced, bool offers) noexcept {
    reader_sleeps_ = &reader_sleeps;
    always_fenced_ = fenced;
    ring_.set_fenced(fenced);
    open_ = true;
    offers_ = offers;
    update();
}

void shm_sender::drop() noexcept {
    open_ = clear_ = false;
    blocked_lines_ = 0;
    for (chain<shm_lent>* list : {&waiting_, &offered_})
        while (shm_lent* one = list->take_first())
            lent_.give_back(*one);
    waiting_count_ = 0;
}

bool shm_sender::write(const frame_header& header, gather payload, std::size_t bytes) noexcept {
    if (!ring_.write(header, payload, bytes)) return false;
    wake_reader();
    return true;
}

void shm_sender::look_at_reader(std::uint64_t now) noexcept {
    const std::uint64_t awake = now & shm_registrations_layout::fences;
    if (awake != reader_awake_) {
        reader_awake_ = awake;
        ring_.set_fenced(always_fenced_ || awake != 0);
        // The record before this check was published without a fence: restore the order of the two.
        std::atomic<bool> any{false};
        any.exchange(true, std::memory_order_seq_cst);
        now = reader_sleeps_->load(std::memory_order_seq_cst);
    }
    if ((now & shm_registrations_layout::asleep) != 0 && std::exchange(rung_, now) != now)
        link_.ring();
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
    if (clear_) {
        switch (advance(*one)) {
            case outcome::over:
                lent_.give_back(*one);
                return posted::done;
            case outcome::offered:
                offered_.append(*one);
                link_.push_later();
                return posted::pending;
            case outcome::blocked:
                break;
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

bool shm_sender::is_offerable(const shm_lent& one) const noexcept {
    return offers_ && one.header.bytes >= offer_from_bytes &&
           one.payload.size() <= shm_offer::max_segments &&
           theirs_.pulls.load(std::memory_order_relaxed) != 0;
}

std::size_t shm_sender::next_bytes(const shm_lent& one) const noexcept {
    if (one.begun) return std::min(one.left, limits::shm_piece_bytes);
    return one.left <= limits::shm_whole_bytes ? one.left : limits::shm_prefix_bytes;
}

shm_sender::outcome shm_sender::advance(shm_lent& one) noexcept {
    if (!one.begun && is_offerable(one)) return offer(one);
    while (one.left > 0 || !one.begun) {
        const std::size_t bytes = next_bytes(one);
        frame_header header = one.header;
        if (one.begun) {
            header = {};
            header.kind = shm_piece_kind;
            header.bytes = static_cast<std::uint32_t>(bytes);
        }
        if (!ring_.write_some(header, one.payload, one.at, bytes)) return outcome::blocked;
        wake_reader();
        one.begun = true;
        one.left -= bytes;
    }
    return outcome::over;
}

shm_sender::outcome shm_sender::offer(shm_lent& one) noexcept {
    if (offers_made_ - offers_answered_ == limits::shm_max_offers) return outcome::blocked;
    if (!ring_.has_room(offer_lines)) return outcome::blocked;
    shm_offer told;
    told.frame = one.header;
    told.slot = static_cast<std::uint32_t>(offers_made_ % limits::shm_max_offers);
    std::byte* prefix = told.prefix;
    walk(one.payload, one.at, limits::shm_prefix_bytes, [&](const_bytes piece) {
        std::memcpy(prefix, piece.data(), piece.size());
        prefix += piece.size();
    });
    std::array<shm_foreign_range, shm_offer::max_segments> ranges;
    segment_cursor rest = one.at;
    walk(one.payload, rest, one.left - limits::shm_prefix_bytes, [&](const_bytes piece) {
        ranges[told.segment_count++] = {reinterpret_cast<std::uint64_t>(piece.data()),
                                        piece.size()};
    });
    mine_.moved[told.slot].store(0, std::memory_order_relaxed);
    const const_bytes parts[] = {as_bytes_of(told),
                                 std::as_bytes(std::span(ranges.data(), told.segment_count))};
    frame_header header;
    header.kind = shm_offer_kind;
    header.bytes = static_cast<std::uint32_t>(total_bytes(gather(parts)));
    write(header, parts, header.bytes);
    one.begun = one.offered = true;
    one.slot = told.slot;
    one.left -= limits::shm_prefix_bytes;
    ++offers_made_;
    return outcome::offered;
}

std::size_t shm_sender::end_answered(std::size_t budget) noexcept {
    const std::uint64_t answered = theirs_.pulled.load(std::memory_order_seq_cst);
    if (answered - offers_answered_ > offers_made_ - offers_answered_) {
        link_.fail(shm_broken_rules);
        return 0;
    }
    std::size_t ended = 0;
    while (open_ && ended < budget && offers_answered_ != answered) {
        ++offers_answered_;
        shm_lent* const one = offered_.take_first();
        completion* const on_sent = one->on_sent;
        lent_.give_back(*one);
        if (on_sent == nullptr) continue;
        link_.port().sent(*on_sent, {});
        ++ended;
    }
    return ended;
}

void shm_sender::bring(std::uint64_t asked) noexcept {
    // The reader requests bytes of its oldest unanswered offer, and answers nothing before they
    // have been provided.
    if (theirs_.pulled.load(std::memory_order_acquire) != offers_answered_) return;
    const std::uint64_t from = theirs_.asked_from.load(std::memory_order_relaxed);
    shm_lent* const one = offered_.first();
    if (one == nullptr || from >= one->left) return link_.fail(shm_broken_rules);
    segment_cursor at = one->at;
    walk(one->payload, at, static_cast<std::size_t>(from), [](const_bytes) {});
    std::byte* to = bounce_;
    const std::size_t bytes = std::min<std::size_t>(one->left - from, limits::shm_bounce_bytes);
    walk(one->payload, at, bytes, [&](const_bytes piece) {
        std::memcpy(to, piece.data(), piece.size());
        to += piece.size();
    });
    brought_ = asked;
    mine_.brought.exchange(asked, std::memory_order_seq_cst);
    wake_reader();
}

std::size_t shm_sender::push(std::size_t budget) noexcept {
    const std::uint64_t asked = theirs_.asked.load(std::memory_order_acquire);
    std::size_t ended = offered_.empty() ? 0 : end_answered(budget);
    if (open_ && asked != brought_) bring(asked);
    while (open_ && ended < budget && !waiting_.empty()) {
        shm_lent* const one = waiting_.first();
        const outcome how = advance(*one);
        if (how == outcome::blocked) break;
        waiting_.remove(*one);
        --waiting_count_;
        update();
        if (how == outcome::offered) {
            offered_.append(*one);
            continue;
        }
        completion* const on_sent = one->on_sent;
        lent_.give_back(*one);
        if (on_sent == nullptr) continue;
        link_.port().sent(*on_sent, {});
        ++ended;
    }
    if (ring_.broken()) link_.fail(shm_broken_rules);
    if (clear_ && blocked_lines_ != 0 && ring_.has_room(blocked_lines_)) {
        blocked_lines_ = 0;
        link_.port().room_came();
        link_.port().writable(link_);
    }
    return ended;
}

bool shm_sender::can_push() noexcept {
    if (!open_) return false;
    if (!offered_.empty() && (theirs_.pulled.load(std::memory_order_seq_cst) != offers_answered_ ||
                              theirs_.asked.load(std::memory_order_seq_cst) != brought_))
        return true;
    if (const shm_lent* one = waiting_.first()) {
        if (!one->begun && is_offerable(*one))
            return offers_made_ - offers_answered_ < limits::shm_max_offers &&
                   ring_.has_room(offer_lines);
        return ring_.has_room(shm_record_lines(next_bytes(*one)));
    }
    return blocked_lines_ != 0 && ring_.has_room(blocked_lines_);
}

bool shm_sender::forget(completion& on_sent) noexcept {
    shm_lent& one = lent_of(on_sent);
    if (one.begun) return false;
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
    const bool offered = one.offered;
    one.on_sent = nullptr;
    if (!own_bytes(one)) return link_.fail({errc::no_memory});
    if (!offered) return;
    const std::uint32_t slot = one.slot;
    // seq_cst: the reader declares that it is copying, then checks this word; we write this word,
    // then check whether it is copying.
    mine_.moved[slot].store(reinterpret_cast<std::uint64_t>(one.own.data()),
                            std::memory_order_seq_cst);
    link_.wait_until_offer_untouched(slot);
}

}  // namespace amalgam::detail
