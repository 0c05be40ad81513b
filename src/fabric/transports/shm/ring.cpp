#include "fabric/transports/shm/ring.hpp"

#include <algorithm>
#include <utility>

namespace amalgam::detail {

bool shm_ring_writer::look_again(std::size_t lines) noexcept {
    sent_messages_ += sent_ >> 32;
    sent_bytes_ += static_cast<std::uint32_t>(std::exchange(sent_, 0));
    const std::uint64_t now = place_.consumed->load(std::memory_order_seq_cst);
    if (now - seen_ > tail_ - seen_) {  // Not between seen_ and tail_.
        broken_ = true;
        return false;
    }
    place_.read().after_load();
    seen_ = now;
    const std::uint64_t at = tail_ & (place_.count - 1);
    const std::uint64_t unread = tail_ - seen_;
    // Before line `at - unread` everything in this lap has been read, so it can be rewritten.
    if (at >= shm_ring_place::lap_lines && unread <= shm_ring_place::lap_lines / 2 &&
        lines <= at - unread)
        start_over();
    const std::uint64_t room = place_.count - (tail_ - seen_);
    const std::uint64_t until_look = shm_ring_place::lap_lines - tail_ % shm_ring_place::lap_lines;
    free_ = std::min(room, std::max<std::uint64_t>(lines, until_look));
    return lines <= free_;
}

void shm_ring_writer::start_over() noexcept {
    frame_header over;
    over.kind = shm_start_over_kind;
    publish(place_.line(tail_), over, 0);
    tail_ = place_.next_lap(tail_);
}

bool shm_ring_writer::write_some(const frame_header& frame, gather payload, segment_cursor& from,
                                 std::size_t bytes) noexcept {
    const std::size_t lines = shm_record_lines(bytes);
    if (!has_room(lines)) return false;
    std::byte* to = payload_place(bytes);
    walk(payload, from, bytes, [&](const_bytes piece) {
        std::memcpy(to, piece.data(), piece.size());
        to += piece.size();
    });
    publish(place_.line(tail_), frame, lines);
    return true;
}

bool shm_ring_reader::tell() noexcept {
    told_ = next_.position;
    place_.read().before_store();
    if (next_.position - woken_ < place_.count / 4) {
        place_.consumed->store(next_.position, std::memory_order_release);
        return false;
    }
    woken_ = next_.position;
    // seq_cst: followed by a check of whether the writer sleeps. A writer that found no room before
    // it fell asleep has most of the ring unread, so another quarter will still be passed.
    place_.consumed->store(next_.position, std::memory_order_seq_cst);
    return true;
}

}  // namespace amalgam::detail
