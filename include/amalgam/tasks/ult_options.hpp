#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace amalgam {

/// Options for a new ULT.
struct ult_options {
    std::string_view name{};  ///< For logs; the first 23 characters are kept.
    /// Usable stack, at least 16 KiB. 0: the pooled default of 256 KiB, which is cheapest (1 MiB
    /// under a sanitizer). This is address space; pages are committed on first touch.
    std::size_t stack_bytes = 0;
    std::uint8_t priority = 0;  ///< For a priority_pool: higher runs sooner.
    /// Stays on the one stream that serves its pool, hence on one thread: thread state, such as the
    /// address of a thread_local, stays valid across waits. Needs a pool that only one stream may
    /// serve, such as a stream's own; otherwise spawn() and migrate() throw error{invalid}.
    bool pinned = false;
};

}  // namespace amalgam
