#pragma once

#include <cstdint>

/// The heap of a test program, replaced by one that counts and that fails when told. A program
/// gets it by linking amalgam_test_memory.
namespace amalgam::memory {

/// How often the program has asked for memory so far, in all threads.
std::uint64_t allocations() noexcept;

/// While one lives, the n-th allocation of this thread (1: the next) fails, once. What the test
/// itself allocates meanwhile does not count: see spared.
///
/// Threads: counts the thread's own allocations only.
class failing {
public:
    explicit failing(std::uint64_t n) noexcept;
    ~failing();
    failing(const failing&) = delete;

    /// Whether it has failed by now.
    static bool struck() noexcept;
};

/// While one lives no allocation fails, nor counts for failing: for what a test does inside
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
