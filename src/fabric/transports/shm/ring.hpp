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
/// up to 40 bytes crosses in one cache line, and no line is wiped or looked at twice.
///
/// The memory is mapped twice, back to back, so nothing ever wraps.
struct shm_ring_place {
    std::byte* lines = nullptr;    ///< Mirrored.
    std::uint64_t count = 0;       ///< Of lines: a power of two.
    std::uint64_t origin = 0;      ///< The first position.
    shm_word* consumed = nullptr;  ///< Where the reader tells the writer how far it is.

    std::byte* line(std::uint64_t position) const noexcept {
        return lines + (position & (count - 1)) * shm_line_bytes;
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
    bool has_room(std::size_t lines) noexcept {
        return tail_ + lines - seen_ <= place_.count || look_again(lines);
    }

    /// Appends a record. False: no room, nothing was written.
    /// `payload` holds `bytes` bytes; `frame.bytes` may say something else.
    bool write(const frame_header& frame, gather payload, std::size_t bytes) noexcept {
        const std::size_t lines = shm_record_lines(bytes);
        if (!has_room(lines)) return false;
        std::byte* const at = place_.line(tail_);
        copy_out(payload, at + shm_payload_offset(bytes));
        publish(at, frame, lines);
        return true;
    }
    /// Appends a record with the next `bytes` bytes of `payload` from `from`, and moves that on.
    bool write_some(const frame_header& frame, gather payload, segment_cursor& from,
                    std::size_t bytes) noexcept;

    /// The reader has claimed to have read what was never written.
    bool broken() const noexcept { return broken_; }

private:
    bool look_again(std::size_t lines) noexcept;

    void publish(std::byte* at, const frame_header& frame, std::size_t lines) noexcept {
        std::memcpy(at + offsetof(shm_record_header, frame), &frame, sizeof frame);
        if (fenced_)
            place_.sequence(at).exchange(tail_, std::memory_order_seq_cst);
        else
            place_.sequence(at).store(tail_, std::memory_order_release);
        tail_ += lines;
    }

    shm_ring_place place_;
    std::uint64_t tail_;  // Where the next record goes.
    std::uint64_t seen_;  // Up to where the reader was when we last looked.
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
        : place_(place), head_(place.origin), told_(place.origin) {}

    /// Whether a record is there. Cost: one load of one line.
    bool ready() const noexcept {
        return place_.sequence(place_.line(head_)).load(std::memory_order_acquire) == head_;
    }
    /// As ready(), for the last look before falling asleep.
    bool ready_at_last() const noexcept {
        return place_.sequence(place_.line(head_)).load(std::memory_order_seq_cst) == head_;
    }

    /// A copy: what is checked is what is used. Precondition, as for payload(): ready().
    frame_header header() const noexcept {
        frame_header copy;
        std::memcpy(&copy, place_.line(head_) + offsetof(shm_record_header, frame), sizeof copy);
        return copy;
    }
    /// The payload in place, until consume(). Precondition: a record of `bytes` fits the ring.
    const_bytes payload(std::size_t bytes) const noexcept {
        return {place_.line(head_) + shm_payload_offset(bytes), bytes};
    }

    /// Done with a record of `bytes`. True: the writer was told that there is room, a quarter of
    /// the ring at a time, so that the word it reads seldom moves.
    bool consume(std::size_t bytes) noexcept {
        head_ += shm_record_lines(bytes);
        if (head_ - told_ < place_.count / 4) return false;
        told_ = head_;
        // seq_cst: followed by a look at whether the writer sleeps.
        place_.consumed->store(head_, std::memory_order_seq_cst);
        return true;
    }

private:
    shm_ring_place place_;
    std::uint64_t head_;  // Where the next record is.
    std::uint64_t told_;  // Up to where the writer knows.
};

}  // namespace amalgam::detail
