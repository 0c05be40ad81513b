#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include <amalgam/flow/detail/doorbell.hpp>

namespace amalgam::detail {

/// Detects the end of a loop (graph::feedback()): no item is in it, and none can enter.
///
/// Counts the items inside, queued or in progress, plus each open input to the loop. When as many
/// were taken away as were added, nothing is left that could add: that is final. A loop over
/// several processes is counted in each, and one process sums up (see exchange).
///
/// Threads: set up by one; then any.
class loop_count {
public:
    loop_count() = default;
    loop_count(const loop_count&) = delete;

    /// `entry` is rung when the loop has ended. Before the run.
    void tell(doorbell& entry) { entries_.push_back(&entry); }
    /// Other processes count, too; the end is then signaled by end(). Before the run.
    void share() noexcept { shared_ = true; }

    void add() noexcept { added_.fetch_add(1); }
    void take_away() noexcept {
        if (taken_.fetch_add(1) + 1 == added_.load() && !shared_) end();
    }
    void end() noexcept {
        over_.store(true);
        for (doorbell* entry : entries_)
            entry->ring();
    }
    bool is_over() const noexcept { return over_.load(std::memory_order_seq_cst); }

    // Both are monotonic.
    std::uint64_t added() const noexcept { return added_.load(); }
    std::uint64_t taken() const noexcept { return taken_.load(); }

private:
    alignas(64) std::atomic<std::uint64_t> added_{0};
    alignas(64) std::atomic<std::uint64_t> taken_{0};
    alignas(64) std::atomic<bool> over_{false};
    bool shared_ = false;
    std::vector<doorbell*> entries_;
};

}  // namespace amalgam::detail
