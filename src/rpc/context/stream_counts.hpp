#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace amalgam::detail {

/// What passed through a procedure's streams of values, in one direction, at one end.
///
/// Threads: the engine's stream, but for what is atomic.
struct stream_counts {
    std::atomic<std::uint64_t> begun{0};
    std::atomic<std::uint64_t> ended{0};
    std::atomic<std::uint64_t> credit_waits{0};  ///< Of senders, for their readers.
    std::uint64_t values = 0;
    std::uint64_t bytes = 0;

    void begin() noexcept { begun.fetch_add(1, std::memory_order_relaxed); }
    void end() noexcept { ended.fetch_add(1, std::memory_order_relaxed); }
    void wait() noexcept { credit_waits.fetch_add(1, std::memory_order_relaxed); }
    void add(std::size_t size) noexcept {
        ++values;
        bytes += size;
    }
};

}  // namespace amalgam::detail
