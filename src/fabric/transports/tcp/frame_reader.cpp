#include "fabric/transports/tcp/frame_reader.hpp"

#include <algorithm>
#include <cstring>

#include "fabric/frames/wire_header.hpp"

namespace amalgam::detail {
namespace {

// After a placement this large, in the same call or the next, leave room only for a header: the
// next frame in such a stream is probably large too, and must not be copied through the receive
// buffer.
constexpr std::size_t long_landing_bytes = std::size_t{32} << 10;
constexpr std::size_t short_room_bytes = 4096;
// A placement so scattered that one call would read less than this is filled by copying.
constexpr std::size_t worth_a_call_bytes = 8192;

bool known(frame_kind kind) noexcept {
    return kind >= frame_kind::unexpected && kind <= frame_kind::last_of_port;
}

}  // namespace

bool frame_reader::hold_receive_buffer(receive_memory& memory) noexcept {
    if (in_.size() == receive_memory::bytes) {
        if (begin_ > 0 && end_ > begin_)
            std::memmove(in_.data(), in_.data() + begin_, end_ - begin_);
    } else {
        buffer large = memory.take();
        if (large.empty()) return false;
        if (end_ > begin_) std::memcpy(large.data(), in_.data() + begin_, end_ - begin_);
        in_ = std::move(large);
    }
    end_ -= begin_;
    begin_ = 0;
    return true;
}

std::size_t frame_reader::direct_places(std::span<iovec, max_places> into,
                                        receive_memory& memory) noexcept {
    std::size_t count = 0;
    std::size_t covered = 0;
    const scatter all = placement_->into;
    for (segment_cursor at = cursor_;
         covered < shown_left_ && count < max_places - 1 && at.index < all.size();
         at = {at.index + 1, 0}) {
        mutable_bytes piece = all[at.index].subspan(at.within);
        if (piece.empty()) continue;
        into[count++] = {piece.data(), piece.size()};
        covered += piece.size();
    }
    if (covered < shown_left_) return covered < worth_a_call_bytes ? 0 : count;
    if (shown_left_ < large_left_) return count;
    if (hold_receive_buffer(memory)) {
        std::size_t room = large_left_ < long_landing_bytes ? in_.size() : short_room_bytes;
        into[count++] = {in_.data(), room};
    }
    return count;
}

std::size_t frame_reader::places(std::span<iovec, max_places> into,
                                 receive_memory& memory) noexcept {
    route_ = route::none;
    if (placement_ != nullptr) {
        std::size_t count = placement_->discard ? 0 : direct_places(into, memory);
        route_ = count != 0 ? route::direct : route::staged;
        if (count != 0) return count;
    }
    if (!hold_receive_buffer(memory)) return 0;
    const std::size_t room = in_.size() - end_;
    into[0] = {in_.data() + end_, after_long_ ? std::min(room, short_room_bytes) : room};
    return 1;
}

/// `bytes` more have landed; makes room for the next. False: the link ended.
bool frame_reader::landed(std::size_t bytes, frame_handler& to) noexcept {
    large_left_ -= bytes;
    shown_left_ -= bytes;
    if (shown_left_ > 0 || large_left_ == 0) return true;
    if (!to.on_large_full()) return false;
    cursor_ = {};
    shown_left_ = total_bytes(scatter(placement_->into));
    return true;
}

bool frame_reader::took_of_large(std::size_t bytes, frame_handler& to) noexcept {
    const std::size_t ours = std::min(bytes, large_left_);
    if (route_ == route::direct) {
        walk(scatter(placement_->into), cursor_, ours, [](mutable_bytes) {});
        end_ = bytes - ours;
        return landed(ours, to);
    }
    begin_ = ours;
    end_ = bytes;
    if (placement_->discard) {
        large_left_ -= ours;
        return true;
    }
    for (std::size_t done = 0; done < ours;) {
        const std::size_t some = std::min(ours - done, shown_left_);
        copy_in(placement_->into, cursor_, const_bytes(in_.data() + done, some));
        done += some;
        if (!landed(some, to)) return false;
    }
    return true;
}

frame_reader::state frame_reader::took(std::size_t bytes, std::size_t& budget, frame_handler& to,
                                       receive_memory& memory) noexcept {
    if (placement_ == nullptr) {
        if (bytes > 0) after_long_ = false;
        end_ += bytes;
        return go_on(budget, to, memory);
    }
    if (!took_of_large(bytes, to)) return state::gone;
    if (large_left_ > 0) {
        settle(memory);
        return state::starving;
    }
    placement_ = nullptr;
    budget -= std::min<std::size_t>(budget, 1);
    switch (to.on_large_end()) {
        case delivery::taken:
            return go_on(budget, to, memory);
        case delivery::pause:
            return state::paused;
        case delivery::malformed:
            return state::malformed;
        case delivery::gone:
            break;
    }
    return state::gone;
}

frame_reader::state frame_reader::go_on(std::size_t& budget, frame_handler& to,
                                        receive_memory& memory) noexcept {
    while (end_ - begin_ >= sizeof(frame_header)) {
        const std::byte* at = in_.data() + begin_;
        const frame_header header = from_wire(at);
        if (!known(header.kind) || header.bytes > max_frame_bytes_) return state::malformed;
        const std::size_t held = end_ - begin_ - sizeof(frame_header);
        const const_bytes payload(at + sizeof(frame_header),
                                  std::min<std::size_t>(held, header.bytes));
        if (payload.size() < header.bytes) {
            if (header.bytes < landing_bytes || payload.size() < 64) break;
            placement_ = to.on_large(header, payload);
            if (placement_ == nullptr) return state::malformed;
            large_left_ = header.bytes - payload.size();
            shown_left_ =
                placement_->discard ? large_left_ : total_bytes(scatter(placement_->into));
            after_long_ = large_left_ >= long_landing_bytes;
            cursor_ = {};
            begin_ = end_;
            break;
        }
        if (budget == 0) return state::busy;
        --budget;
        begin_ += sizeof(frame_header) + header.bytes;
        switch (to.on_frame(header, payload)) {
            case delivery::taken:
                break;
            case delivery::pause:
                return state::paused;
            case delivery::malformed:
                return state::malformed;
            case delivery::gone:
                return state::gone;
        }
    }
    settle(memory);
    return state::starving;
}

void frame_reader::settle(receive_memory& memory) noexcept {
    if (in_.size() != receive_memory::bytes) return;
    const std::size_t left = end_ - begin_;
    buffer kept;
    if (left != 0) {
        kept = memory.pool().try_take(left);
        if (kept.empty()) return;
        std::memcpy(kept.data(), in_.data() + begin_, left);
    }
    memory.give(std::exchange(in_, std::move(kept)));
    begin_ = 0;
    end_ = left;
}

}  // namespace amalgam::detail
