#include "fabric/transports/shm/receiver.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "fabric/limits.hpp"
#include "fabric/memory/guarded_memory.hpp"
#include "fabric/transports/shm/link.hpp"
#include "fabric/transports/shm/memory/cross_memory.hpp"
#include "fabric/transports/shm/port.hpp"

namespace amalgam::detail {
namespace {

// Bytes copied before other links are polled: about 40 us.
constexpr std::size_t copy_bytes_at_once = std::size_t{512} << 10;

bool is_frame_of_port(frame_kind kind) noexcept {
    return kind < frame_kind::first_of_transport;
}

}  // namespace

std::size_t shm_receiver::take(std::size_t budget) noexcept {
    std::size_t taken = 0;
    if (copying_) [[unlikely]] {
        taken += copy_some();
        if (copying_ || !open_ || !ring_.ready()) return taken;
    }
    // Pieces are not counted as frames, but must not starve the other links.
    const std::byte* record = ring_.record();
    for (; budget > 0 && record != nullptr; --budget) {
        const frame_header header = ring_.header_of(record);
        if (arrives_.into == nullptr && is_frame_of_port(header.kind) &&
            header.bytes <= limits::shm_whole_bytes) [[likely]] {
            const const_bytes payload = ring_.payload_of(record, header.bytes);
            const delivery what = link_.port().deliver(link_, header, payload);
            if (what != delivery::taken) [[unlikely]]
                return taken + follow(what, header);
            ++taken;
            consume(header.bytes);
        } else {
            taken += take_other(header);
            if (copying_ || !open_) break;
        }
        record = ring_.record();
    }
    return taken;
}

std::size_t shm_receiver::take_other(const frame_header& header) noexcept {
    if (header.kind == shm_start_over_kind) {
        if (ring_.start_over()) link_.wake_writer();
        return 0;
    }
    if (arrives_.into != nullptr)
        return header.kind == shm_piece_kind ? take_piece(header) : break_off(shm_broken_rules);
    if (is_frame_of_port(header.kind)) return take_start(header);
    return header.kind == shm_offer_kind ? take_offer(header) : break_off(shm_broken_rules);
}

std::size_t shm_receiver::follow(delivery what, const frame_header& whole) noexcept {
    if (what == delivery::pause) consume(whole.bytes);
    return follow(what);
}

std::size_t shm_receiver::follow(delivery what) noexcept {
    switch (what) {
        case delivery::pause:
            pause();
            break;
        case delivery::malformed:
            return break_off(shm_broken_rules);
        case delivery::taken:
        case delivery::gone:
            break;
    }
    return 1;
}

std::size_t shm_receiver::break_off(status why) noexcept {
    link_.fail(why);
    return 0;
}

void shm_receiver::consume(std::size_t bytes) noexcept {
    if (ring_.consume(bytes)) link_.wake_writer();
}

bool shm_receiver::begin(const frame_header& header, const_bytes prefix) noexcept {
    arrives_.into = link_.port().begin_placement(link_, header, prefix);
    arrives_.at = {};
    arrives_.left = header.bytes - prefix.size();
    return arrives_.into != nullptr;
}

std::size_t shm_receiver::take_start(const frame_header& header) noexcept {
    if (!begin(header, ring_.payload(limits::shm_prefix_bytes))) return break_off(shm_broken_rules);
    consume(limits::shm_prefix_bytes);
    return 0;
}

std::size_t shm_receiver::take_piece(const frame_header& header) noexcept {
    if (header.bytes == 0 || header.bytes > limits::shm_piece_bytes || header.bytes > arrives_.left)
        return break_off(shm_broken_rules);
    if (!arrives_.into->discard)
        copy_in(arrives_.into->into, arrives_.at, ring_.payload(header.bytes));
    arrives_.left -= header.bytes;
    consume(header.bytes);
    if (arrives_.left > 0) return 0;
    arrives_.into = nullptr;
    return follow(link_.port().end_placement(link_));
}

std::size_t shm_receiver::take_offer(const frame_header& header) noexcept {
    constexpr std::size_t most =
        sizeof(shm_offer) + shm_offer::max_segments * sizeof(shm_foreign_range);
    if (!link_.takes_offers() || header.bytes < sizeof(shm_offer) || header.bytes > most)
        return break_off(shm_broken_rules);
    const const_bytes payload = ring_.payload(header.bytes);
    shm_offer told;
    std::memcpy(&told, payload.data(), sizeof told);
    std::array<shm_foreign_range, shm_offer::max_segments> ranges;
    std::memcpy(ranges.data(), payload.data() + sizeof told, header.bytes - sizeof told);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // As in shm_ring_reader::header().
    const std::size_t bytes = told.frame.bytes;
    if (told.segment_count == 0 || told.slot != offers_taken_ % limits::shm_max_offers ||
        header.bytes != sizeof told + told.segment_count * sizeof(shm_foreign_range) ||
        !is_frame_of_port(told.frame.kind) || bytes <= limits::shm_whole_bytes)
        return break_off(shm_broken_rules);

    offer_ = {};
    offer_.slot = told.slot;
    offer_.segment_count = told.segment_count;
    for (std::size_t i = 0; i < offer_.segment_count; ++i) {
        if (ranges[i].bytes > bytes - limits::shm_prefix_bytes - offer_.bytes)
            return break_off(shm_broken_rules);
        offer_.bytes += ranges[i].bytes;
        offer_.segments[i] = foreign_bytes(ranges[i].address, ranges[i].bytes);
    }
    if (offer_.bytes != bytes - limits::shm_prefix_bytes || !begin(told.frame, told.prefix))
        return break_off(shm_broken_rules);
    consume(header.bytes);
    copying_ = true;
    return copy_some();
}

std::size_t shm_receiver::copy_some() noexcept {
    if (arrives_.into->discard) return end_copy();
    if (bounce_filled_) {
        empty_bounce_buffer();
    } else if (link_.crosses_memory()) {
        const std::size_t bytes = std::min(arrives_.left, copy_bytes_at_once);
        const segment_cursor before = arrives_.at;
        const status what = copy_part(bytes);
        if (is_refusal_of_kernel(what)) {
            arrives_.at = before;
            link_.denied(what);
        } else if (what == no_access && what.native == no_access.native) {
            // The destination is inaccessible: the rest of the frame is not copied.
            link_.port().unwritable(link_);
            return end_copy();
        } else if (!what.ok()) {
            return break_off({errc::disconnected, what.native});
        } else {
            arrives_.left -= bytes;
        }
    }
    if (arrives_.left == 0) return end_copy();
    if (!link_.crosses_memory()) ask();
    return 0;
}

status shm_receiver::copy_part(std::size_t bytes) noexcept {
    const shm_link::touch touching(link_, shm_touched::offer(offer_.slot));
    if (theirs_.closed.load(std::memory_order_seq_cst) != 0) return {errc::disconnected};
    // The sender may have taken its memory back and moved the bytes elsewhere, in one piece.
    const std::uint64_t moved = theirs_.moved[offer_.slot].load(std::memory_order_seq_cst);
    if (moved != 0) {
        offer_.segments[0] = foreign_bytes(moved, offer_.bytes);
        offer_.segment_count = 1;
        offer_.at = {0, offer_.bytes - arrives_.left};
    }
    cross_place<mutable_bytes> to{arrives_.into->into, arrives_.at};
    cross_place<const_bytes> from{{offer_.segments.data(), offer_.segment_count}, offer_.at};
    const status what = copy_from_process(link_.pid(), to, from, bytes);
    arrives_.at = to.at;
    offer_.at = from.at;
    return what;
}

void shm_receiver::ask() noexcept {
    waits_ = true;
    update();
    mine_.asked_from.store(offer_.bytes - arrives_.left, std::memory_order_relaxed);
    mine_.asked.store(++asked_, std::memory_order_seq_cst);
    link_.wake_writer();
    link_.push_later();
}

void shm_receiver::poll_bounce_buffer() noexcept {
    if (!waits_ || theirs_.brought.load(std::memory_order_seq_cst) != asked_) return;
    waits_ = false;
    bounce_filled_ = true;
    update();
}

void shm_receiver::empty_bounce_buffer() noexcept {
    const const_bytes brought(bounce_, std::min(arrives_.left, limits::shm_bounce_bytes));
    copy_in(arrives_.into->into, arrives_.at, brought);
    arrives_.left -= brought.size();
    bounce_filled_ = false;
}

std::size_t shm_receiver::end_copy() noexcept {
    copying_ = bounce_filled_ = false;
    arrives_.into = nullptr;
    // A sender that is gone may have reused the memory before the copy was complete, and its
    // process id may have been reused. If the sender is still here, it was the right memory.
    if (!link_.is_there()) return break_off({errc::disconnected});
    mine_.pulled.store(++offers_taken_, std::memory_order_seq_cst);
    link_.wake_writer();
    return follow(link_.port().end_placement(link_));
}

}  // namespace amalgam::detail
