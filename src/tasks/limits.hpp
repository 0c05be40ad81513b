#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

/// Sizes and times of tasks that users do not set; those that they set are ult_options
/// (<amalgam/tasks/ult_options.hpp>) and execution_stream_options
/// (<amalgam/tasks/execution_stream.hpp>).
namespace amalgam::detail::limits {

// ---- stacks
/// Default usable size of a ULT's stack. Address space only: pages are committed when touched.
inline constexpr std::size_t default_stack_bytes = 256 * 1024;
inline constexpr std::size_t sanitized_stack_bytes = 1024 * 1024;  ///< The same, under a sanitizer.
inline constexpr std::size_t min_stack_bytes = 16 * 1024;
inline constexpr std::size_t min_borrowed_stack_bytes = 20 * 1024;  ///< With the descriptor.
/// More address space than any process has, but far from overflowing sums.
inline constexpr std::size_t max_stack_bytes = SIZE_MAX / 4;
/// Address space is cheap; a frame that steps over a narrower guard is not.
inline constexpr std::size_t guard_bytes = 64 * 1024;
/// Stacks of the default size that are mapped at once, when many are.
inline constexpr std::size_t max_slab_stacks = 16;
/// Stack of a primary stream's loop: for tasklets, timers and pollers, which have some MiB on the
/// thread of any other stream.
inline constexpr std::size_t loop_stack_bytes = 4 * 1024 * 1024;

// ---- free blocks, given from thread to thread by the list
inline constexpr std::size_t free_list_blocks = 64;
inline constexpr std::size_t max_free_lists = 16;

// ---- streams
/// How long an idle stream with an adaptive spin polls before it sleeps.
inline constexpr std::chrono::nanoseconds max_spin = std::chrono::microseconds(50);
inline constexpr std::chrono::nanoseconds min_spin = std::chrono::microseconds(2);
/// Units run between two checks of pollers and timers; grows while that many take hardly a
/// microsecond.
inline constexpr std::size_t min_batch = 32;
inline constexpr std::size_t max_batch = 256;

// ---- looking at a program that hangs
/// For the stack trace of a running ULT.
inline constexpr std::chrono::milliseconds trace_limit{200};
/// ULTs named in a warning about those left in a pool.
inline constexpr std::size_t max_names_logged = 4;

}  // namespace amalgam::detail::limits
