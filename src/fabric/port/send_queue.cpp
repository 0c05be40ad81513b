#include "fabric/port/send_queue.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "fabric/limits.hpp"
#include "fabric/memory/guarded_memory.hpp"

namespace amalgam::detail {
namespace {

// Copies share buffers of this size; the largest copy fits in a fresh one.
constexpr std::size_t chunk_bytes = 16384;
static_assert(chunk_bytes >= limits::max_copy_bytes + sizeof(wire_header));

/// Position in the payload after the first `gone` bytes of the frame.
segment_cursor place_of(gather payload, std::size_t gone) noexcept {
    segment_cursor at;
    if (gone > sizeof(wire_header))
        walk(payload, at, gone - sizeof(wire_header), [](const_bytes) {});
    return at;
}

/// Copies the frame from byte `gone` on to `to`.
void copy_frame(const wire_header& header, gather payload, std::size_t gone,
                std::byte* to) noexcept {
    if (gone < header.size()) {
        std::memcpy(to, header.data() + gone, header.size() - gone);
        to += header.size() - gone;
    }
    segment_cursor at = place_of(payload, gone);
    if (at.index < payload.size() && at.within > 0) {
        const_bytes rest = payload[at.index].subspan(at.within);
        std::memcpy(to, rest.data(), rest.size());
        to += rest.size();
        ++at.index;
    }
    copy_out(payload.subspan(at.index), to);
}

/// The same for memory that may be inaccessible: zeros replace what cannot be read.
void copy_guarded(const wire_header& header, gather payload, std::size_t gone,
                  std::byte* to) noexcept {
    if (gone < header.size()) {
        std::memcpy(to, header.data() + gone, header.size() - gone);
        to += header.size() - gone;
    }
    for (segment_cursor at = place_of(payload, gone); at.index < payload.size();
         at = {at.index + 1, 0}) {
        const const_bytes rest = payload[at.index].subspan(at.within);
        if (!read_guarded(rest, to)) std::memset(to, 0, rest.size());
        to += rest.size();
    }
}

}  // namespace

send_queue::frame* send_queue::push() noexcept {
    try {
        return &frames_.emplace_back();
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

void send_queue::pop() noexcept {
    frames_[first_] = frame{};
    gone_ = 0;
    cursor_ = {};
    if (++first_ == frames_.size()) {
        frames_.clear();
        first_ = 0;
    } else if (first_ >= 64 && first_ * 2 >= frames_.size()) {
        frames_.erase(frames_.begin(), frames_.begin() + static_cast<std::ptrdiff_t>(first_));
        first_ = 0;
    }
}

bool send_queue::copy(const wire_header& header, gather payload, std::size_t gone) noexcept {
    const std::size_t bytes = header.size() + total_bytes(payload) - gone;
    if (copied_ + bytes > limits::max_copied_bytes) return false;
    const bool shares = !empty() && !frames_.back().own.empty() &&
                        frames_.back().own.capacity() - frames_.back().own.size() >= bytes;
    if (!shares) {
        buffer fresh = pool_.try_take(chunk_bytes);
        if (fresh.empty()) return false;
        frame* made = push();
        if (made == nullptr) return false;
        made->own = std::move(fresh);
        made->own.resize(0);
    }
    frame& last = frames_.back();
    const std::size_t end = last.own.size();
    last.own.resize(end + bytes);
    copy_frame(header, payload, gone, last.own.data() + end);
    last.bytes = last.own.size();
    copied_ += bytes;
    return true;
}

bool send_queue::lend(const wire_header& header, gather payload, completion& on_sent,
                      std::size_t gone) noexcept {
    frame* made = lent_ < limits::max_borrowed_frames ? push() : nullptr;
    if (made == nullptr) return false;
    made->header = header;
    made->payload = payload;
    made->on_sent = &on_sent;
    made->bytes = header.size() + total_bytes(payload);
    ++lent_;
    if (gone == 0) return true;
    gone_ = gone;
    cursor_ = place_of(payload, gone);
    return true;
}

std::size_t send_queue::fill(std::span<iovec> into, std::size_t frames) const noexcept {
    std::size_t count = 0;
    const std::size_t end = frames < frames_.size() - first_ ? first_ + frames : frames_.size();
    auto add = [&](const_bytes piece) {
        if (!piece.empty()) into[count++] = {const_cast<std::byte*>(piece.data()), piece.size()};
    };
    for (std::size_t i = first_; i < end && count < into.size(); ++i) {
        const frame& one = frames_[i];
        const std::size_t gone = i == first_ ? gone_ : 0;
        if (!one.own.empty()) {
            add(one.own.bytes().subspan(gone));
            continue;
        }
        if (gone < one.header.size()) add(const_bytes(one.header).subspan(gone));
        segment_cursor at = i == first_ ? cursor_ : segment_cursor{};
        for (; at.index < one.payload.size() && count < into.size(); at = {at.index + 1, 0})
            add(one.payload[at.index].subspan(at.within));
    }
    return count;
}

completion* send_queue::advance(std::size_t& bytes) noexcept {
    while (bytes > 0) {
        frame& one = frames_[first_];
        const std::size_t some = std::min(bytes, one.bytes - gone_);
        bytes -= some;
        if (!one.own.empty()) copied_ -= some;
        if (gone_ + some < one.bytes) {
            if (one.own.empty()) {
                const std::size_t header_left =
                    sizeof(wire_header) - std::min(gone_, sizeof(wire_header));
                if (some > header_left)
                    walk(one.payload, cursor_, some - header_left, [](const_bytes) {});
            }
            gone_ += some;
            break;
        }
        completion* through = one.on_sent;
        pop();
        if (through == nullptr) continue;
        --lent_;
        return through;
    }
    return nullptr;
}

send_queue::frame* send_queue::find(const completion& on_sent) noexcept {
    for (std::size_t i = first_; i < frames_.size(); ++i)
        if (frames_[i].on_sent == &on_sent) return &frames_[i];
    return nullptr;
}

bool send_queue::forget(const completion& on_sent) noexcept {
    frame* found = find(on_sent);
    if (found == nullptr) return false;
    const auto index = static_cast<std::size_t>(found - frames_.data());
    if (index == first_ && gone_ > 0) return false;
    --lent_;
    if (index == first_) {
        pop();
    } else {
        frames_.erase(frames_.begin() + static_cast<std::ptrdiff_t>(index));
    }
    return true;
}

bool send_queue::detach(const completion& on_sent) noexcept {
    frame* found = find(on_sent);
    if (found == nullptr) return true;
    const bool begun = found == frames_.data() + first_;
    const std::size_t gone = begun ? gone_ : 0;
    buffer rest = pool_.try_take(found->bytes - gone);
    if (rest.empty()) return false;
    copy_guarded(found->header, found->payload, gone, rest.data());
    found->bytes = rest.size();
    found->own = std::move(rest);
    found->payload = {};
    found->on_sent = nullptr;
    copied_ += found->bytes;
    --lent_;
    if (begun) {
        gone_ = 0;
        cursor_ = {};
    }
    return true;
}

bool send_queue::first_is_readable() const noexcept {
    const gather payload = frames_[first_].payload;
    for (segment_cursor at = cursor_; at.index < payload.size(); at = {at.index + 1, 0})
        if (!is_readable(payload[at.index].subspan(at.within))) return false;
    return true;
}

bool send_queue::blank_first() noexcept {
    frame& one = frames_[first_];
    buffer rest = pool_.try_take(one.bytes - gone_);
    if (rest.empty()) return false;
    std::memset(rest.data(), 0, rest.size());
    one.bytes = rest.size();
    one.own = std::move(rest);
    one.payload = {};
    one.on_sent = nullptr;
    copied_ += one.bytes;
    --lent_;
    gone_ = 0;
    cursor_ = {};
    return true;
}

void send_queue::clear() noexcept {
    frames_.clear();
    first_ = gone_ = copied_ = lent_ = 0;
    cursor_ = {};
}

}  // namespace amalgam::detail
