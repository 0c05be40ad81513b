#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/status.hpp>

namespace amalgam::detail {

/// How what ran apart ended.
struct confined_end {
    errc code = errc::ok;
    std::string sentence{};
    std::vector<std::byte> result{};
};

/// What confined code may take.
struct confined_limits {
    std::chrono::nanoseconds time;
    std::size_t result_bytes;
};

/// Runs `work(payload)` in a process of its own, which has a copy of all private memory of this one
/// as it is now, and nothing else: no shared memory, no files, no sockets, and of the system little
/// more than memory and clocks. What it changes is gone with it.
///
/// Threads: any; parks the ULT or thread.
/// Failure: `handler_failed` with what it threw, or how it ended: by a signal, or by what the
/// system
///          refused it; `timed_out`, `canceled`, `too_large`, `no_memory`.
/// Cost:    a fork: some hundred microseconds, more with much memory.
confined_end run_confined(const std::function<void(void* payload, std::size_t bytes)>& work,
                          const_bytes payload, std::size_t alignment,
                          const confined_limits& limits);

/// This is such a process.
bool is_confined() noexcept;
/// In such a process: keeps the result of `work`. False: this is none.
bool give_confined_result(const void* data, std::size_t bytes) noexcept;

}  // namespace amalgam::detail
