#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/detail/sanitizer_order.hpp>
#include <amalgam/fabric/extension/peer_traffic.hpp>
#include <amalgam/fabric/extension/port_work.hpp>
#include <amalgam/fabric/extension/short_lane.hpp>
#include <amalgam/fabric/message.hpp>

#include "fabric/memory/segments.hpp"
#include "fabric/transports/shm/memory/layout.hpp"

namespace amalgam::detail {

/// A ring of lines between one writer and one reader; its records are contiguous.
///
/// Position p is at line p modulo the number of lines. A record at position p is present once the
/// first word of its line equals p. Positions start at 64 random bits and never repeat, so
/// leftovers of an earlier lap in a line do not equal its current position: an older record's
/// header has a smaller position, and payload matches only with probability 2^-64. So a message of
/// up to 40 bytes crosses in one cache line, and no line is cleared or read twice. (A word is
/// entirely header or payload: a payload that ends within the first word of a line clears the rest
/// of it. Otherwise two of its bytes could turn an older lap's position into a later one's.)
///
/// The memory is mapped twice, back to back, so nothing ever wraps.
///
/// While the reader keeps up, the writer returns to line 0 after every `lap_lines`, with a record
/// that says so. The same few lines then go back and forth and stay in the innermost caches. The
/// whole ring is used when the reader falls behind. (In a ping-pong of single lines this saves a
/// quarter of the time.)
struct shm_ring_place {
    static constexpr std::uint64_t lap_lines = 128;

    std::byte* lines = nullptr;    ///< Mirrored.
    std::uint64_t count = 0;       ///< Number of lines: a power of two.
    std::uint64_t origin = 0;      ///< The first position.
    shm_word* consumed = nullptr;  ///< Where the reader reports its position to the writer.

    std::byte* line(std::uint64_t position) const noexcept {
        return lines + (position & (count - 1)) * shm_line_bytes;
    }
    /// The first position after `position` that is at line 0.
    std::uint64_t next_lap(std::uint64_t position) const noexcept {
        return (position | (count - 1)) + 1;
    }
    /// Of what the writer stored, and of what the reader reports.
    sanitizer_order written() const noexcept { return sanitizer_order(origin); }
    sanitizer_order read() const noexcept { return sanitizer_order(origin + 1); }
};

/// The writing end.
///
/// Threads: one at a time. Trusts nothing that the reader can write.
class shm_ring_writer : public short_lane {
public:
    explicit shm_ring_writer(const shm_ring_place& place) noexcept
        : short_lane(place.lines, place.count, place.origin, place.written()),
          place_(place),
          seen_(place.origin) {}

    /// Whether a load after write() must never pass the record's store (see sleep_barrier.hpp).
    /// Initially true.
    void set_fenced(bool to) noexcept { fenced_ = to; }

    /// Whether a record of that many lines fits now.
    bool has_room(std::size_t lines) noexcept { return lines <= free_ || look_again(lines); }

    /// What room() and tell_reader() need: `reader` says whether it sleeps; `changed(owner, now)`
    /// is called when that is other than set_awake() says.
    void connect(const shm_word& reader, void (*changed)(void*, std::uint64_t) noexcept,
                 void* owner) noexcept {
        reader_ = &reader;
        changed_ = changed;
        owner_ = owner;
    }
    void set_open(bool to) noexcept { is_open_ = to; }
    bool is_open() const noexcept { return is_open_; }
    void set_awake(std::uint64_t state) noexcept { reader_awake_ = state; }
    std::uint64_t awake() const noexcept { return reader_awake_; }
    using short_lane::tell_reader;
    using short_lane::transmit;
    /// Adds what send() counted.
    void add_traffic(peer_traffic& to) const noexcept {
        to.sent_messages += sent_messages_ + (sent_ >> 32);
        to.sent_bytes += sent_bytes_ + static_cast<std::uint32_t>(sent_);
    }

    /// Appends a record. False: no room, nothing was written. `payload` holds `bytes` bytes;
    /// `frame.bytes` may differ.
    bool write(const frame_header& frame, gather payload, std::size_t bytes) noexcept {
        const std::size_t lines = shm_record_lines(bytes);
        if (!has_room(lines)) return false;
        copy_out(payload, payload_place(bytes));
        publish(place_.line(tail_), frame, lines);
        return true;
    }
    /// As write(), for a contiguous payload that fits the line of its header.
    bool write_short(const frame_header& frame, const_bytes payload) noexcept {
        if (!has_room(1)) return false;
        std::byte* const at = place_.line(tail_);
        copy(at + sizeof(shm_record_header), payload);
        publish(at, frame, 1);
        return true;
    }
    /// Appends a record with the next `bytes` bytes of `payload` from `from`, and advances `from`.
    bool write_some(const frame_header& frame, gather payload, segment_cursor& from,
                    std::size_t bytes) noexcept;

    /// The reader claims to have read what was never written.
    bool broken() const noexcept { return broken_; }

private:
    /// Where the payload of the next record goes. Clears what could look like a header after its
    /// end.
    std::byte* payload_place(std::size_t bytes) const noexcept {
        std::byte* const at = place_.line(tail_);
        const std::size_t end = shm_payload_offset(bytes) + bytes;
        const std::size_t last = (end - 1) % shm_line_bytes;  // Its last byte, within its line.
        if (last < sizeof(std::uint64_t) - 1)
            std::memset(at + (end - 1 - last), 0, sizeof(std::uint64_t));
        return at + shm_payload_offset(bytes);
    }

    bool look_again(std::size_t lines) noexcept;
    void start_over() noexcept;

    /// `at`: the line of tail_.
    void publish(std::byte* at, const frame_header& frame, std::size_t lines) noexcept {
        // By words, as header_of() has just written it: see copy().
        std::uint64_t kind_and_size = 0;
        std::memcpy(&kind_and_size, &frame, 8);
        short_lane::publish(at, kind_and_size, frame.tag, lines);
    }

    shm_ring_place place_;
    std::uint64_t sent_messages_ = 0;  // With `sent_`, all by send().
    std::uint64_t sent_bytes_ = 0;
    std::uint64_t seen_;  // The reader's position at the last check.
    bool broken_ = false;

    static_assert(max_bytes == shm_short_bytes && line_bytes == shm_line_bytes);
    static_assert(header_bytes == sizeof(shm_record_header));
    static_assert(message_kind == static_cast<std::uint64_t>(frame_kind::unexpected) << 32);
    static_assert(state_mask == shm_registrations_layout::a_sleep - 1);
};

/// The reading end.
///
/// Threads: one at a time. The writer's claims cannot lead outside the ring: a record is at most as
///          long as the caller allows. Payloads are read in place, so a malicious writer can change
///          them meanwhile.
class shm_ring_reader {
public:
    explicit shm_ring_reader(const shm_ring_place& place) noexcept
        : place_(place),
          next_{place.origin, place.line(place.origin)},
          told_(place.origin),
          woken_(place.origin) {}

    /// Whether a record is present. Cost: one load of one line.
    bool ready() const noexcept { return next_.is_there(); }
    /// The same for others, while this lives.
    const port_work::next_message& next() const noexcept { return next_; }
    /// The current record, valid until consume(); else null.
    const std::byte* record() const noexcept { return ready() ? present_record() : nullptr; }
    /// The same after ready().
    const std::byte* present_record() const noexcept {
        place_.written().after_load();
        return next_.at;
    }
    /// As ready(), for the final check before sleeping.
    bool ready_at_last() const noexcept { return next_.is_there(std::memory_order_seq_cst); }

    /// A copy: what is checked is what is used. Precondition, as for payload(): ready().
    frame_header header() const noexcept { return header_of(next_.at); }
    /// The same for record(), without locating it again.
    static frame_header header_of(const std::byte* record) noexcept {
        frame_header copy;
        std::memcpy(&copy, record + offsetof(shm_record_header, frame), sizeof copy);
        // Keeps the compiler from reading it again, as it may have changed by then.
        std::atomic_signal_fence(std::memory_order_seq_cst);
        return copy;
    }
    /// Of a message whose record is one line: its payload's size. Else more than shm_short_bytes.
    /// Keeps the compiler from reading it again, too.
    static std::uint64_t short_message_bytes(const std::byte* record) noexcept {
        std::uint64_t word = 0;
        std::memcpy(&word, record + offsetof(shm_record_header, frame), sizeof word);
        std::atomic_signal_fence(std::memory_order_seq_cst);
        return word - (static_cast<std::uint64_t>(frame_kind::unexpected) << 32);
    }
    static std::uint64_t tag_of(const std::byte* record) noexcept {
        std::uint64_t tag = 0;
        std::memcpy(&tag, record + offsetof(shm_record_header, frame.tag), sizeof tag);
        return tag;
    }
    /// The payload in place, until consume(). Precondition: a record of `bytes` fits the ring.
    const_bytes payload(std::size_t bytes) const noexcept { return payload_of(next_.at, bytes); }
    static const_bytes payload_of(const std::byte* record, std::size_t bytes) noexcept {
        return {record + shm_payload_offset(bytes), bytes};
    }

    /// Finishes a record of `bytes`. True: another quarter of the ring is free, so a writer that
    /// sleeps for lack of room must be woken.
    bool consume(std::size_t bytes) noexcept {
        return go_to(next_.position + shm_record_lines(bytes));
    }
    /// The same for a record of one line.
    bool consume_line() noexcept { return go_to(next_.position + 1); }
    /// As consume(), for the record by which the writer returns to line 0.
    bool start_over() noexcept { return go_to(place_.next_lap(next_.position)); }

private:
    /// Lines returned at a time, so that the word that the writer reads changes seldom.
    static constexpr std::uint64_t told_lines = shm_ring_place::lap_lines / 4;

    bool go_to(std::uint64_t position) noexcept {
        next_ = {position, place_.line(position)};
        return position - told_ >= told_lines && tell();
    }
    bool tell() noexcept;

    shm_ring_place place_;
    port_work::next_message
        next_;             // Its line, too, as that is asked for more often than it changes.
    std::uint64_t told_;   // Position reported to the writer.
    std::uint64_t woken_;  // Our position when a sleeping writer was last to be woken.
};

}  // namespace amalgam::detail
