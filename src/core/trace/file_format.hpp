#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <amalgam/core/detail/page_size.hpp>

/// The file in which a process records; written by `recorder`, read by `gathered_trace`. Of this
/// release only: whoever reads it was built with what wrote it.
///
///     trace_file_header          one page
///     trace_text_slot[4096]      texts by number: a hash table that only grows
///     chunks of 256 KiB          from 576 KiB on: kernels with pages of 64 KiB map them, too; each
///     of
///                                one thread at a time: a chunk_header, then records
namespace amalgam::detail {

inline constexpr std::uint64_t trace_magic = 0x34'45'43'41'52'54'4d'41;  // "AMTRACE4"
inline constexpr std::size_t trace_header_bytes = 4096;
inline constexpr std::size_t trace_texts = 4096;
inline constexpr std::size_t trace_chunk_bytes = 256 * 1024;
inline constexpr std::size_t trace_most_mib = 16384;
inline constexpr std::size_t trace_most_chunks = trace_most_mib * 1024 * 1024 / trace_chunk_bytes;

struct trace_file_header {
    std::uint64_t magic;
    std::uint32_t pid;
    std::uint32_t reserved;
    std::uint64_t started;       ///< By the monotonic clock, in nanoseconds.
    std::uint64_t started_wall;  ///< At the same time, since 1970.
    std::atomic<std::uint64_t> dropped;
    std::atomic<std::uint64_t> unnamed;  ///< Texts that found no room.
    std::atomic<std::uint32_t> chunks;
    char boot[40];  ///< Processes of the same boot share the monotonic clock.
    char host[72];
    char program[256];
    char service[128];      ///< OTEL_SERVICE_NAME.
    char attributes[1024];  ///< OTEL_RESOURCE_ATTRIBUTES.
};
static_assert(sizeof(trace_file_header) <= trace_header_bytes);

struct trace_text_slot {
    std::atomic<std::uint64_t> hash;    ///< 0: free.
    std::atomic<std::uint32_t> length;  ///< One more than that of the text; 0: not there yet.
    char text[112];
    std::uint32_t reserved;
};
static_assert(sizeof(trace_text_slot) == 128);

inline constexpr std::size_t trace_chunks_at = std::size_t{576} * 1024;
static_assert(trace_chunks_at >= trace_header_bytes + trace_texts * sizeof(trace_text_slot));
static_assert(trace_chunks_at % largest_page_bytes == 0 &&
              trace_chunk_bytes % largest_page_bytes == 0);

struct trace_chunk_header {
    std::atomic<std::uint32_t> used;  ///< Bytes of records, which are complete.
    std::uint32_t reserved[15];
};
static_assert(sizeof(trace_chunk_header) == 64);

/// Kinds of records beside those of span_kind.
enum : std::uint8_t { trace_unit = 32, trace_mark = 33, trace_thread = 34 };

struct trace_record_head {
    std::uint16_t bytes;  ///< Of the whole record.
    std::uint8_t kind;
    std::uint8_t what;
    std::uint32_t thread;
};
struct trace_span_bytes {
    trace_record_head head;  // A handler that begins its trace is its own parent.
    std::uint64_t begin, middle, end;
    std::byte trace[16], id[8], parent[8];
    std::uint32_t name, peer;
    std::uint64_t bytes;
    std::uint32_t code, values;
};
static_assert(sizeof(trace_span_bytes) == 88);
struct trace_unit_bytes {
    trace_record_head head;
    std::uint64_t time, unit;
    std::uint32_t name, waits_for;
};
/// A mark: its name and detail. A thread: its name.
struct trace_mark_bytes {
    trace_record_head head;
    std::uint64_t time;
    std::uint32_t name, detail;
};

}  // namespace amalgam::detail
