#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <amalgam/core/bytes.hpp>
#include <amalgam/fabric/message.hpp>

#include "fabric/segments.hpp"
#include "fabric/transports/shm/layout.hpp"

namespace amalgam::detail {

/// A ring of lines between one writer and one reader, of records that are contiguous.
///
/// Position p stands at line p modulo the number of lines. A record at position p is there when
/// the first word of its line equals p. Positions start at 64 random bits and never repeat, so
/// what an earlier lap left in a line does not equal its position now: not the header of an older
/// record, which held a smaller position, and payload only by a chance of 2^-64. So a message of
/// up to 40 bytes crosses in one cache line, and no line is wiped or looked at twice. (A word is
/// the one or the other: a payload that ends within the first word of a line clears its rest. Else
/// two of its bytes could make the position of an older lap that of a later one.)
///
/// The memory is mapped twice, back to back, so nothing ever wraps.
///
/// While the reader keeps up, the writer starts over at line 0 after each `lap_lines`, by a record
/// that says so: the same few lines go back and forth then, and stay in the innermost caches. All
/// of the ring is used when the reader falls behind. (In a ping-pong of single lines that is worth
/// a quarter of the time.)
struct shm_ring_place {
    static constexpr std::uint64_t lap_lines = 128;

    std::byte* lines = nullptr;    ///< Mirrored.
    std::uint64_t count = 0;       ///< Of lines: a power of two.
    std::uint64_t origin = 0;      ///< The first position.
    shm_word* consumed = nullptr;  ///< Where the reader tells the writer how far it is.

    std::byte* line(std::uint64_t position) const noexcept {
        return lines + (position & (count - 1)) * shm_line_bytes;
    }
    /// The first position after `position` that stands at line 0.
    std::uint64_t next_lap(std::uint64_t position) const noexcept {
        return (position | (count - 1)) + 1;
    }
    /// The word of a line that says whether a record begins there.
    static std::atomic_ref<std::uint64_t> sequence(std::byte* line) noexcept {
        return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(line));
    }
};

/// The end that writes.
///
/// Threads: one at a time. Trusts nothing that the reader can write.
class shm_ring_writer {
public:
    explicit shm_ring_writer(const shm_ring_place& place) noexcept
        : place_(place), tail_(place.origin), seen_(place.origin) {}

    /// Whether a load that follows write() must never pass the record (see sleep_barrier.hpp).
    /// At first it must not.
    void set_fenced(bool to) noexcept { fenced_ = to; }

    /// Whether a record of that many lines fits now.
    bool has_room(std::size_t lines) noexcept { return lines <= free_ || look_again(lines); }

    /// Appends a record. False: no room, nothing was written.
    /// `payload` holds `bytes` bytes; `frame.bytes` may say something else.
    bool write(const frame_header& frame, gather payload, std::size_t bytes) noexcept {
        const std::size_t lines = shm_record_lines(bytes);
        if (!has_room(lines)) return false;
        copy_out(payload, payload_place(bytes));
        publish(frame, lines);
        return true;
    }
    /// As write(), for a payload in one piece that goes into the line of its header.
    bool write_short(const frame_header& frame, const_bytes payload) noexcept {
        if (!has_room(1)) return false;
        copy_short(place_.line(tail_) + sizeof(shm_record_header), payload);
        publish(frame, 1);
        return true;
    }
    /// Appends a record with the next `bytes` bytes of `payload` from `from`, and moves that on.
    bool write_some(const frame_header& frame, gather payload, segment_cursor& from,
                    std::size_t bytes) noexcept;

    /// The reader has claimed to have read what was never written.
    bool broken() const noexcept { return broken_; }

private:
    /// Up to shm_short_bytes, in line, as a call would cost more. By words and not by more at
    /// once: what was written last is in such pieces, and a load of several of them would wait
    /// until all have reached the cache.
    static void copy_short(std::byte* to, const_bytes from) noexcept {
        const std::byte* source = from.data();
        std::size_t left = from.size();
        for (; left >= 8; left -= 8, to += 8, source += 8)
            std::memcpy(to, source, 8);
        if (left >= 4) {
            std::memcpy(to, source, 4);
            left -= 4, to += 4, source += 4;
        }
        for (; left > 0; --left)
            *to++ = *source++;
    }

    /// Where the payload of the next record goes, with no part of a header behind its end.
    std::byte* payload_place(std::size_t bytes) const noexcept {
        std::byte* const at = place_.line(tail_);
        const std::size_t end = shm_payload_offset(bytes) + bytes;
        const std::size_t last = (end - 1) % shm_line_bytes;  // Its last byte, in its line.
        if (last < sizeof(std::uint64_t) - 1)
            std::memset(at + (end - 1 - last), 0, sizeof(std::uint64_t));
        return at + shm_payload_offset(bytes);
    }

    bool look_again(std::size_t lines) noexcept;
    void start_over() noexcept;

    void publish(const frame_header& frame, std::size_t lines) noexcept {
        std::byte* const at = place_.line(tail_);
        // Field by field, as it was written just now: see copy_short().
        std::byte* const to = at + offsetof(shm_record_header, frame);
        const auto copy = [to](const auto& field, std::size_t offset) {
            std::memcpy(to + offset, &field, sizeof field);
        };
        copy(frame.bytes, offsetof(frame_header, bytes));
        copy(frame.kind, offsetof(frame_header, kind));
        copy(frame.flags, offsetof(frame_header, flags));
        copy(frame.extra, offsetof(frame_header, extra));
        copy(frame.tag, offsetof(frame_header, tag));
        if (fenced_)
            place_.sequence(at).exchange(tail_, std::memory_order_seq_cst);
        else
            place_.sequence(at).store(tail_, std::memory_order_release);
        tail_ += lines;
        free_ -= lines;
    }

    shm_ring_place place_;
    std::uint64_t tail_;      // Where the next record goes.
    std::uint64_t free_ = 0;  // Lines that may be written before we look again.
    std::uint64_t seen_;      // Up to where the reader was when we last looked.
    bool fenced_ = true;
    bool broken_ = false;
};

/// The end that reads.
///
/// Threads: one at a time. What the writer claims stays within the ring: a record is at most as
/// long as the caller lets it be. Payloads are read in place, so a writer that breaks the rules
/// can change them while they are looked at.
class shm_ring_reader {
public:
    explicit shm_ring_reader(const shm_ring_place& place) noexcept
        : place_(place), head_(place.origin), told_(place.origin), woken_(place.origin) {}

    /// Whether a record is there. Cost: one load of one line.
    bool ready() const noexcept { return record() != nullptr; }
    /// The record that is there, until consume(); else null.
    const std::byte* record() const noexcept {
        std::byte* const at = place_.line(head_);
        return place_.sequence(at).load(std::memory_order_acquire) == head_ ? at : nullptr;
    }
    /// As ready(), for the last look before falling asleep.
    bool ready_at_last() const noexcept {
        return place_.sequence(place_.line(head_)).load(std::memory_order_seq_cst) == head_;
    }

    /// A copy: what is checked is what is used. Precondition, as for payload(): ready().
    frame_header header() const noexcept { return header_of(place_.line(head_)); }
    /// The same of record(), which need not be found again.
    static frame_header header_of(const std::byte* record) noexcept {
        frame_header copy;
        std::memcpy(&copy, record + offsetof(shm_record_header, frame), sizeof copy);
        // Nor may the compiler read it once more instead of keeping it: another may be there then.
        std::atomic_signal_fence(std::memory_order_seq_cst);
        return copy;
    }
    /// The payload in place, until consume(). Precondition: a record of `bytes` fits the ring.
    const_bytes payload(std::size_t bytes) const noexcept {
        return payload_of(place_.line(head_), bytes);
    }
    static const_bytes payload_of(const std::byte* record, std::size_t bytes) noexcept {
        return {record + shm_payload_offset(bytes), bytes};
    }

    /// Done with a record of `bytes`. True: another quarter of the ring is free, so a writer that
    /// sleeps for want of room is to be woken.
    bool consume(std::size_t bytes) noexcept { return go_to(head_ + shm_record_lines(bytes)); }
    /// As consume(), for the record by which the writer starts over.
    bool start_over() noexcept { return go_to(place_.next_lap(head_)); }

private:
    /// So many lines are given back at a time, for the word that the writer reads to move seldom.
    static constexpr std::uint64_t told_lines = shm_ring_place::lap_lines / 4;

    bool go_to(std::uint64_t position) noexcept {
        head_ = position;
        return head_ - told_ >= told_lines && tell();
    }
    bool tell() noexcept;

    shm_ring_place place_;
    std::uint64_t head_;   // Where the next record is.
    std::uint64_t told_;   // Up to where the writer knows.
    std::uint64_t woken_;  // How far we were when a sleeping writer was last to be woken.
};

}  // namespace amalgam::detail
