#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "fabric/frame.hpp"

/// What two processes that talk over shm:// hold in common. docs/wire/shm.md tells the same in
/// prose, and why; the two change together.
namespace amalgam::detail {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "words are shared by processes");
static_assert(std::endian::native == std::endian::little, "frames are little-endian");

/// A word that two processes share.
using shm_word = std::atomic<std::uint64_t>;

inline constexpr std::uint32_t shm_version = 4;
inline constexpr std::size_t shm_line_bytes = 64;
inline constexpr std::size_t shm_page_bytes = 4096;
/// Of each of the two rings between two ports.
inline constexpr std::size_t shm_ring_bytes = std::size_t{256} << 10;
inline constexpr std::size_t shm_ring_lines = shm_ring_bytes / shm_line_bytes;
/// Longest payload that travels as one record, contiguous. An eighth of the ring, so that a
/// consumer that returns room in quarters never starves a producer that waits for it.
inline constexpr std::size_t shm_whole_bytes = shm_ring_bytes / 8;
/// Of a longer payload, what travels with its header; the rest follows in pieces or is offered.
inline constexpr std::size_t shm_prefix_bytes = 64;
/// Longest piece. Half of the longest whole record: the reader starts sooner.
inline constexpr std::size_t shm_piece_bytes = shm_ring_bytes / 16;

/// What is brought at a time of a payload on offer that its reader may not copy after all.
inline constexpr std::size_t shm_tray_bytes = std::size_t{64} << 10;

/// Kinds of records besides those of framed_port.
inline constexpr frame_kind shm_piece_kind{16};       ///< More of the payload that began before.
inline constexpr frame_kind shm_offer_kind{17};       ///< payload: shm_offer; come and copy it.
inline constexpr frame_kind shm_start_over_kind{18};  ///< The next record stands at line 0.

/// Stands at the start of a record, on a line of its own.
struct shm_record_header {
    std::uint64_t sequence;  ///< Equal to the position of its line: the record is there.
    frame_header frame;
};
static_assert(sizeof(shm_record_header) == 24);
/// Longest payload that shares a line with its header.
inline constexpr std::size_t shm_short_bytes = shm_line_bytes - sizeof(shm_record_header);

/// Where the payload stands in a record. Long ones begin on a line of their own: copying aligned
/// lines is faster, and readers may look at them in place.
constexpr std::size_t shm_payload_offset(std::size_t bytes) noexcept {
    return bytes < 1024 ? sizeof(shm_record_header) : shm_line_bytes;
}

/// How many lines a record with that payload takes.
constexpr std::size_t shm_record_lines(std::size_t bytes) noexcept {
    return (shm_payload_offset(bytes) + bytes + shm_line_bytes - 1) / shm_line_bytes;
}

/// A range of the memory of one process, as another sees it.
struct shm_foreign_range {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
};

/// The payload of an offer record, followed by `segment_count` ranges.
struct shm_offer {
    static constexpr std::size_t max_segments = 16;
    static constexpr std::size_t max_open = 8;  ///< Offers of one side not yet answered.

    frame_header frame;               ///< Of the frame on offer.
    std::uint32_t slot = 0;           ///< Number of the offer, modulo max_open.
    std::uint32_t segment_count = 0;  ///< 1 to max_segments.
    std::byte prefix[shm_prefix_bytes] = {};
};
static_assert(sizeof(shm_offer) == 88);

/// What one side copies from or to the memory of the other: so that who closes one region does not
/// wait for the copying of another.
struct shm_touched {
    static constexpr std::uint64_t writes = std::uint64_t{1} << 31;  ///< Beside a region's id.

    /// The low half of an id is the number of a slot, far below that bit.
    static constexpr std::uint64_t region(std::uint64_t id, bool for_writing) noexcept {
        return (id & ~writes) | (for_writing ? writes : 0);
    }
    static constexpr std::uint64_t offer(std::uint32_t slot) noexcept {
        return ~std::uint64_t{slot};
    }
    static constexpr bool is_offer(std::uint64_t what) noexcept {
        return ~what < shm_offer::max_open;
    }
};

/// What one side of a connection tells the other by words. Only the side itself writes them.
/// Grouped by line: what changes often stands apart from what is rarely written.
struct shm_side {
    alignas(shm_line_bytes) shm_word consumed;  ///< Position up to which its inward ring is free.
    shm_word pulled;                            ///< Offers that it has answered so far.

    alignas(shm_line_bytes) shm_word wants;  ///< Odd: ring me when the words above move.
    shm_word closed;                         ///< Not 0: copy nothing from or to my memory.
    shm_word pulls;                          ///< Not 0: I can answer offers.

    alignas(shm_line_bytes) shm_word touching;  ///< Odd: copying from or to your memory just now.
    shm_word asked;       ///< How often it asked for bytes of an offer, to be put on the tray.
    shm_word asked_from;  ///< From where on, in the ranges of the oldest offer not answered.
    shm_word brought;     ///< How many such requests of the other side it has met.
    shm_word touched;  ///< What it copies from or to: see shm_touched. Written before `touching`.

    /// Where the bytes of an offer stand by now, if not where the offer said; else 0.
    alignas(shm_line_bytes) std::array<shm_word, shm_offer::max_open> moved;
};
static_assert(sizeof(shm_side) == 4 * shm_line_bytes);

/// The memory of one connection: words of both sides, the trays, then the rings.
struct shm_pair_layout {
    static constexpr std::size_t sides_offset = 0;  ///< Of the connector, then of the acceptor.
    static constexpr std::size_t tray_to_acceptor = shm_page_bytes;
    static constexpr std::size_t tray_to_connector = tray_to_acceptor + shm_tray_bytes;
    static constexpr std::size_t ring_to_acceptor = tray_to_connector + shm_tray_bytes;
    static constexpr std::size_t ring_to_connector = ring_to_acceptor + shm_ring_bytes;
    static constexpr std::size_t bytes = ring_to_connector + shm_ring_bytes;
};

/// A region as its owner publishes it.
struct shm_region_slot {
    static constexpr std::size_t max_segments = 5;
    static constexpr std::size_t words = 16;
    enum word_of : std::size_t { version, region, secret, length, shape, blocks, segments };

    /// version: odd while the others change. shape: rights, and the count of segments from bit 8
    /// on. blocks: 12 bits per segment, which block it lies in, counted from 1; 0: in none.
    /// segments: address and length, alternating.
    std::array<shm_word, words> word;

    static constexpr unsigned block_bits = 12;
};
static_assert(sizeof(shm_region_slot) == 128);
static_assert(shm_region_slot::segments + 2 * shm_region_slot::max_segments ==
              shm_region_slot::words);
static_assert(shm_region_slot::max_segments * shm_region_slot::block_bits <= 64);

/// Memory that a port's peers can map, as its owner publishes it.
struct shm_block_slot {
    static constexpr std::size_t words = 8;
    enum word_of : std::size_t { version, address, length, descriptor, device, inode };

    /// version: odd while the others change, or the slot is free. address: in the owner's memory.
    /// descriptor: the number under which the owner's process holds it open. device and inode tell
    /// whether what stands under that number is still this memory.
    std::array<shm_word, words> word;
};
static_assert(sizeof(shm_block_slot) == shm_line_bytes);

/// The memory that a port shows to all its peers, who cannot write it.
struct shm_board_layout {
    static constexpr std::size_t slot_count = 4096;
    static constexpr std::size_t block_count = 1024;
    static constexpr std::size_t bytes = shm_page_bytes + slot_count * sizeof(shm_region_slot) +
                                         block_count * sizeof(shm_block_slot);

    static constexpr std::uint64_t asleep = 1;  ///< Ring after writing a record.
    static constexpr std::uint64_t fences =
        2;  ///< Have a full barrier before looking at `sleeping`.
    static constexpr std::uint64_t a_sleep = 4;  ///< Counts them, so that two differ.

    alignas(shm_line_bytes) shm_word sleeping;
    alignas(shm_line_bytes) shm_word blocks_freed;  ///< How often a block has left the board.
    alignas(shm_page_bytes) std::array<shm_region_slot, slot_count> slots;
    std::array<shm_block_slot, block_count> blocks;
};
static_assert(sizeof(shm_board_layout) == shm_board_layout::bytes);
static_assert(shm_board_layout::block_count < 1u << shm_region_slot::block_bits);

}  // namespace amalgam::detail
