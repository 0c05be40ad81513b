#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <amalgam/core/status.hpp>

/// What a process records of itself where AMALGAM_TRACE names a folder: spans of calls, handlers
/// and transfers, and what its units do. The file is mapped memory, so what was recorded outlives a
/// process that is killed; write_chrome_trace() reads it.
///
/// Threads: any; each thread writes to memory of its own, without a lock.
/// Cost:    while nothing is recorded, a load and a branch. Else a copy of at most 96 bytes per
///          record, and three system calls per 256 KiB.
namespace amalgam::detail {

/// Starts recording if AMALGAM_TRACE is set, once in each process; a child of fork() starts anew.
/// True: this process records. A folder that cannot be used is logged once.
bool start_recording() noexcept;
extern std::atomic<bool> is_recording;
/// Whether this process records.
inline bool recording() noexcept {
    return is_recording.load(std::memory_order_relaxed);
}
/// Whether a new trace is to be recorded, by AMALGAM_TRACE_RATE.
bool sample_new_trace() noexcept;
/// Nanoseconds of the machine's monotonic clock.
std::uint64_t trace_time() noexcept;
/// A number for the text, good in this process. Texts are cut off after 112 bytes. A process has
/// room for some 4,000 different ones, of all kinds of records; what finds none has the number 0,
/// is without it in the trace, and is counted: see traced_process::unnamed.
std::uint32_t trace_text(std::string_view text) noexcept;

/// `stream`: values that a handler sends or reads, and `values` a batch of those.
enum class span_kind : std::uint8_t { call = 1, one_way, handler, transfer, batch, stream, values };

/// Something with a beginning and an end.
struct span_record {
    span_kind kind = span_kind::call;
    std::uint64_t begin = 0;
    /// Of a call: it left for the peer. Of a handler: it began to run, and `begin` is the arrival.
    /// 0: unknown, or never.
    std::uint64_t middle = 0;
    std::uint64_t end = 0;
    std::array<std::byte, 16> trace{};
    std::array<std::byte, 8> id{};      ///< A handler's is that of its call.
    std::array<std::byte, 8> parent{};  ///< All zero: none.
    std::uint32_t name = 0;             ///< As trace_text().
    std::uint32_t peer = 0;
    std::uint64_t bytes = 0;  ///< Moved, or of the arguments.
    errc code = errc::ok;
    std::uint32_t values = 0;  ///< Of a stream, or a batch of it.
};
void record_span(const span_record& what) noexcept;

/// Something that a ULT or tasklet does, on the calling thread. `what` is a task_event.
void record_unit(std::uint8_t what, const void* unit, std::uint32_t name,
                 std::uint32_t waits_for) noexcept;

/// Something that happens at once, for example the restart of a process. Both are as for
/// trace_text(): text that differs each time soon finds no room.
void record_mark(std::string_view what, std::string_view detail) noexcept;

}  // namespace amalgam::detail
