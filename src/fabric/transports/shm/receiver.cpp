#include "fabric/transports/shm/receiver.hpp"

#include <cstring>
#include <new>

#include "fabric/limits.hpp"
#include "fabric/transports/shm/link.hpp"
#include "fabric/transports/shm/port.hpp"

namespace amalgam::detail {
namespace {

bool is_frame_of_port(frame_kind kind) noexcept {
    return kind < frame_kind::first_of_transport;
}

}  // namespace

bool shm_receiver::copy_all() noexcept {
    copy_.reset(new (std::nothrow) private_copy);
    arrives_.into = none();
    return copy_ != nullptr;
}

/// Of the current record; up to limits::shm_whole_bytes.
const_bytes shm_receiver::payload(std::size_t bytes) noexcept {
    const const_bytes there = ring_.payload(bytes);
    if (copy_ == nullptr || bytes == 0) return there.first(bytes);
    std::memcpy(copy_->bytes.data(), there.data(), bytes);
    return const_bytes(copy_->bytes).first(bytes);
}

void shm_receiver::pause() noexcept {
    paused_ = true;
    link_.port().choose_only();
}

void shm_receiver::resume() noexcept {
    paused_ = false;
    link_.port().choose_only();
}

std::size_t shm_receiver::take(std::size_t budget) noexcept {
    std::size_t taken = 0;
    // Pieces are not counted as frames, but must not starve the other links.
    const std::byte* record = ring_.present_record();
    for (; budget > 0; --budget) {
        const std::uint64_t bytes = ring_.short_message_bytes(record);
        if (bytes <= shm_short_bytes && arrives_.into == nullptr) [[likely]] {
            const std::uint64_t tag = ring_.tag_of(record);
            const delivery what = link_.port().deliver_message(
                *link_.record, tag, {record + sizeof(shm_record_header), bytes});
            if (what != delivery::taken) [[unlikely]]
                return taken + follow(what, header_of(frame_kind::unexpected, tag, bytes));
            ++taken;
            if (ring_.consume_line()) [[unlikely]]
                link_.wake_writer();
        } else {
            const taken_frame one = take_any(record);
            taken += one.count;
            if (one.is_last) break;
        }
        record = ring_.record();
        if (record == nullptr) break;
    }
    return taken;
}

[[gnu::noinline]] shm_receiver::taken_frame shm_receiver::take_any(
    const std::byte* record) noexcept {
    const frame_header header = ring_.header_of(record);
    if (arrives_.into != nullptr || !is_frame_of_port(header.kind) ||
        header.bytes > limits::shm_whole_bytes) {
        const std::size_t count = take_other(header);
        return {count, paused_};
    }
    const const_bytes payload = ring_.payload_of(record, header.bytes);
    const delivery what = header.kind == frame_kind::unexpected
                              ? link_.port().deliver_message(*link_.record, header.tag, payload)
                              : link_.port().deliver(link_, header, payload);
    if (what != delivery::taken) [[unlikely]]
        return {follow(what, header), true};
    consume(header.bytes);
    return {1, false};
}

std::size_t shm_receiver::take_other(const frame_header& header) noexcept {
    if (header.kind == shm_start_over_kind) {
        if (ring_.start_over()) link_.wake_writer();
        return 0;
    }
    if (arrives_.into == none()) {
        if (!is_frame_of_port(header.kind)) return break_rules();
        return header.bytes <= limits::shm_whole_bytes ? take_copy(header) : take_start(header);
    }
    return header.kind == shm_piece_kind ? take_piece(header) : break_rules();
}

std::size_t shm_receiver::take_copy(const frame_header& header) noexcept {
    const delivery what = link_.port().deliver(link_, header, payload(header.bytes));
    if (what != delivery::taken) return follow(what, header);
    consume(header.bytes);
    return 1;
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
            return break_rules();
        case delivery::taken:
        case delivery::gone:
            break;
    }
    return 1;
}

std::size_t shm_receiver::break_rules() noexcept {
    link_.fail(shm_broken_rules);
    return 0;
}

void shm_receiver::consume(std::size_t bytes) noexcept {
    if (ring_.consume(bytes)) link_.wake_writer();
}

std::size_t shm_receiver::take_start(const frame_header& header) noexcept {
    arrives_.into = link_.port().begin_placement(link_, header, payload(limits::shm_prefix_bytes));
    if (arrives_.into == nullptr) return break_rules();
    arrives_.at = {};
    arrives_.left = header.bytes - limits::shm_prefix_bytes;
    consume(limits::shm_prefix_bytes);
    return 0;
}

std::size_t shm_receiver::take_piece(const frame_header& header) noexcept {
    if (header.bytes == 0 || header.bytes > limits::shm_piece_bytes || header.bytes > arrives_.left)
        return break_rules();
    if (!arrives_.into->discard)
        copy_in(arrives_.into->into, arrives_.at, ring_.payload(header.bytes));
    arrives_.left -= header.bytes;
    consume(header.bytes);
    if (arrives_.left > 0) return 0;
    arrives_.into = none();
    return follow(link_.port().end_placement(link_));
}

}  // namespace amalgam::detail
