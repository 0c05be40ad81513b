#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <amalgam/core/detail/page_size.hpp>

#include "fabric/frames/frame.hpp"
#include "fabric/limits.hpp"

/// Data structures shared by two processes that communicate over shm://. docs/wire/shm.md describes
/// and explains them; change both together.
namespace amalgam::detail {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free,
              "words shared between processes must be lock-free");
static_assert(std::endian::native == std::endian::little, "frames are little-endian");

/// A word shared by two processes.
using shm_word = std::atomic<std::uint64_t>;

inline constexpr std::uint32_t shm_version = 7;
inline constexpr std::size_t shm_line_bytes = 64;
inline constexpr std::size_t shm_page_bytes = 4096;
inline constexpr std::size_t shm_ring_lines = limits::shm_ring_bytes / shm_line_bytes;
/// Record kinds in addition to those of framed_port.
inline constexpr frame_kind shm_piece_kind{16};       ///< More of a payload that began before.
inline constexpr frame_kind shm_start_over_kind{17};  ///< The next record is at line 0.

/// Start of a record, at the beginning of a line.
struct shm_record_header {
    std::uint64_t sequence;  ///< Equal to the position of its line once the record is there.
    frame_header frame;
};
static_assert(sizeof(shm_record_header) == 24);
/// Longest payload that shares a line with its header.
inline constexpr std::size_t shm_short_bytes = shm_line_bytes - sizeof(shm_record_header);

/// Offset of the payload in a record. Long payloads start on their own line: copying aligned lines
/// is faster, and readers may use them in place.
constexpr std::size_t shm_payload_offset(std::size_t bytes) noexcept {
    return bytes < 1024 ? sizeof(shm_record_header) : shm_line_bytes;
}

/// Number of lines of a record with that payload.
constexpr std::size_t shm_record_lines(std::size_t bytes) noexcept {
    return (shm_payload_offset(bytes) + bytes + shm_line_bytes - 1) / shm_line_bytes;
}

/// Identifies the region that one side is copying from or to, so that closing one region does not
/// wait for the copying of another.
struct shm_touched {
    static constexpr std::uint64_t writes = std::uint64_t{1} << 31;  ///< Added to a region's id.

    /// The low half of an id is a slot number, far below that bit.
    static constexpr std::uint64_t region(std::uint64_t id, bool for_writing) noexcept {
        return (id & ~writes) | (for_writing ? writes : 0);
    }
};

/// State that one side of a connection shows to the other. Only the owning side writes it. Grouped
/// by cache line: frequently changed words are apart from rarely written ones.
struct shm_side {
    /// Position up to which its receiving ring is free.
    alignas(shm_line_bytes) shm_word consumed;

    alignas(shm_line_bytes) shm_word wants;  ///< Odd: ring me when your `consumed` changes.
    shm_word closed;                         ///< Not 0: copy nothing from or to my memory.

    alignas(shm_line_bytes) shm_word touching;  ///< Odd: copying from or to your memory.
    shm_word touched;  ///< What it copies: see shm_touched. Written before `touching`.
};
static_assert(sizeof(shm_side) == 3 * shm_line_bytes);

/// Memory of one connection: state of both sides, then rings.
struct shm_pair_layout {
    static constexpr std::size_t sides_offset = 0;  ///< The connector's, then the acceptor's.
    static constexpr std::size_t sides_bytes = shm_page_bytes;
    static constexpr std::size_t ring_to_acceptor = largest_page_bytes;  // Each is mapped alone.
    static constexpr std::size_t ring_to_connector = ring_to_acceptor + limits::shm_ring_bytes;
    static constexpr std::size_t bytes = ring_to_connector + limits::shm_ring_bytes;
};
static_assert(limits::shm_ring_bytes % largest_page_bytes == 0);

/// A region as published by its owner.
struct shm_region_slot {
    static constexpr std::size_t max_segments = 5;
    static constexpr std::size_t words = 16;
    enum word_of : std::size_t { version, region, secret, length, shape, blocks, segments };

    /// version: odd while the others change. shape: access rights, and the segment count from bit 8
    /// on. blocks: 12 bits per segment with the block that contains it, counted from 1; 0: none.
    /// segments: address and length, alternating.
    std::array<shm_word, words> word;

    static constexpr unsigned block_bits = 12;
};
static_assert(sizeof(shm_region_slot) == 128);
static_assert(shm_region_slot::segments + 2 * shm_region_slot::max_segments ==
              shm_region_slot::words);
static_assert(shm_region_slot::max_segments * shm_region_slot::block_bits <= 64);

/// Memory that peers can map, as published by its owner.
struct shm_block_slot {
    static constexpr std::size_t words = 8;
    enum word_of : std::size_t { version, address, length, descriptor, device, inode };

    /// version: odd while the others change, or if the slot is free. address: in the owner's
    /// memory. descriptor: its number in the owner's process. device and inode tell whether that
    /// number still refers to this memory.
    std::array<shm_word, words> word;
};
static_assert(sizeof(shm_block_slot) == shm_line_bytes);

/// The memory that a port shares with all its peers, who cannot write it.
struct shm_registrations_layout {
    static constexpr std::size_t slot_count = 4096;
    static constexpr std::size_t block_count = 1024;
    static constexpr std::size_t bytes = shm_page_bytes + slot_count * sizeof(shm_region_slot) +
                                         block_count * sizeof(shm_block_slot);

    static constexpr std::uint64_t asleep = 1;  ///< Ring after writing a record.
    static constexpr std::uint64_t fences =
        2;  ///< Execute a full barrier before checking `sleeping`.
    static constexpr std::uint64_t a_sleep = 4;  ///< Counts sleeps, to tell them apart.

    alignas(shm_line_bytes) shm_word sleeping;
    alignas(shm_line_bytes) shm_word blocks_freed;  ///< How many blocks have been withdrawn.

    /// Of the owner's copies over other transports than shm://, as shm_side's of one connection.
    alignas(shm_line_bytes) shm_word touching;
    shm_word touched;      ///< As shm_side::touched.
    shm_word touches_of;   ///< Token of the port whose region it is: see host_name.
    shm_word incarnation;  ///< Of the owner, for those copies; 0: no region was published yet.
    shm_word token;        ///< The owner's.
    /// Tokens of the ports that may copy, by the number that each was told; 0: nobody.
    static constexpr std::size_t admitted_count = 448;
    alignas(shm_line_bytes) std::array<shm_word, admitted_count> admitted;
    alignas(shm_page_bytes) std::array<shm_region_slot, slot_count> slots;
    std::array<shm_block_slot, block_count> blocks;
};
static_assert(sizeof(shm_registrations_layout) == shm_registrations_layout::bytes);
static_assert(shm_registrations_layout::block_count < 1u << shm_region_slot::block_bits);

}  // namespace amalgam::detail
