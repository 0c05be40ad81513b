#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace amalgam {

/// How a ULT is made.
struct ult_options {
    std::string_view name{};  ///< For logs; the first 23 characters are kept.
    /// Usable stack, at least 16 KiB. 0: the pooled default of 256 KiB, which costs least (1 MiB
    /// where a sanitizer watches). Address space only: pages become memory as they are touched.
    std::size_t stack_bytes = 0;
    std::uint8_t priority = 0;  ///< For a priority_pool: the higher, the sooner.
    /// It stays on the stream that serves its pool, so on one thread: what it knows of its thread,
    /// as the address of a thread_local, stays true across its waits. Only in a pool that one
    /// stream alone may serve, as a stream's own; spawn() and migrate() throw error{invalid} else.
    bool pinned = false;
};

}  // namespace amalgam
