#pragma once

#include <cstddef>
#include <new>

namespace amalgam::detail {

/// What derives from this, and is made by `new`, is in memory that is locked, as far as
/// RLIMIT_MEMLOCK allows, and in no core dump. It is wiped in the end.
///
/// OpenSSL's secure heap is for keys that live as long as a port. It has one size, and connections
/// would fill it.
///
/// Threads: any.
/// Failure: throws std::bad_alloc; null where that is asked for.
/// Memory:  pieces of one size, of blocks that stay until the process ends, for the next ones.
struct in_secret_memory {
    /// Of the largest.
    static constexpr std::size_t most_bytes = 192;

    static void* operator new(std::size_t bytes);
    static void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept;
    static void operator delete(void* piece) noexcept;
};

}  // namespace amalgam::detail
