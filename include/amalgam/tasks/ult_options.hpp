#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace amalgam {

/// How a ULT is made.
struct ult_options {
    std::string_view name{};      ///< For logs; the first 23 characters are kept.
    std::size_t stack_bytes = 0;  ///< Usable stack; 0: the pooled default, which costs least.
    std::uint8_t priority = 0;    ///< For a priority_pool: the higher, the sooner.
    /// It stays on the stream that serves its pool, so on one thread: what it knows of its thread,
    /// as the address of a thread_local, stays true across its waits. Only in a pool that one
    /// stream alone may serve, as a stream's own; spawn() and migrate() throw error{invalid} else.
    bool pinned = false;
};

}  // namespace amalgam
