#include "fabric/transports/shm/ring.hpp"

namespace amalgam::detail {

bool shm_ring_writer::look_again(std::size_t lines) noexcept {
    const std::uint64_t now = place_.consumed->load(std::memory_order_seq_cst);
    if (now - seen_ > tail_ - seen_) {  // Not between the last look and the end.
        broken_ = true;
        return false;
    }
    seen_ = now;
    return tail_ + lines - seen_ <= place_.count;
}

bool shm_ring_writer::write_some(const frame_header& frame, gather payload, segment_cursor& from,
                                 std::size_t bytes) noexcept {
    const std::size_t lines = shm_record_lines(bytes);
    if (!has_room(lines)) return false;
    std::byte* const at = place_.line(tail_);
    std::byte* to = at + shm_payload_offset(bytes);
    walk(payload, from, bytes, [&](const_bytes piece) {
        std::memcpy(to, piece.data(), piece.size());
        to += piece.size();
    });
    publish(at, frame, lines);
    return true;
}

}  // namespace amalgam::detail
