#pragma once

#include <cstdint>

/// Replaces the heap of a test program by one that counts allocations, and fails on demand. Link
/// amalgam_test_memory to use it.
namespace amalgam::memory {

/// Allocations of the program so far, in all threads.
std::uint64_t allocations() noexcept;

/// While one lives, the n-th allocation of this thread (1: the next) fails, and those after it, up
/// to `how_many` together. The test's own allocations can be excluded: see spared.
///
/// Threads: counts the thread's own allocations only.
class failing {
public:
    explicit failing(std::uint64_t n, std::uint64_t how_many = 1) noexcept;
    ~failing();
    failing(const failing&) = delete;

    /// Whether it has failed yet.
    static bool struck() noexcept;
};

/// While one lives, no allocation fails or is counted by failing: for the test's own code in
/// callbacks.
class spared {
public:
    spared() noexcept;
    ~spared();
    spared(const spared&) = delete;

private:
    bool before_;
};

}  // namespace amalgam::memory
