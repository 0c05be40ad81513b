#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace amalgam {

/// Options for a new ULT.
struct ult_options {
    std::string_view name{};  ///< For logs; the first 23 characters are kept.
    /// Usable stack, at least 16 KiB. 0: the pooled default of 256 KiB, which is cheapest (1 MiB
    /// under a sanitizer). This is address space; pages are committed on first touch.
    std::size_t stack_bytes = 0;
    /// Memory of the caller's for the stack, instead of stack_bytes: at least 20 KiB, of which some
    /// 1 KiB at the top is the ULT's own; any alignment. Must stay valid until join() has returned
    /// (revive() may use it again before); that of a detached ULT, or of one whose pool is
    /// destroyed, for ever. post() refuses it with error{invalid}. Has no guard: an overflow
    /// overwrites what is below, and is reported only if the caller has made that inaccessible.
    std::span<std::byte> stack{};
    std::uint8_t priority = 0;  ///< For a priority_pool: higher runs sooner.
    /// Stays on the one stream that serves its pool, hence on one thread: thread state, such as the
    /// address of a thread_local, stays valid across waits. Needs a pool that only one stream may
    /// serve, such as a stream's own; otherwise spawn() and migrate() throw error{invalid}.
    bool pinned = false;
};

}  // namespace amalgam
