#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include <amalgam/flow/detail/doorbell.hpp>

namespace amalgam::detail {

/// Finds out that a loop (graph::feedback()) has ended: no item is in it, nor will one come.
///
/// Counted are the items inside, whether they wait in a queue or are worked on, and each way into
/// the loop that may still bring some. When what was added is as much as what was taken away,
/// nobody is left who could add: that is final. A loop in several processes is counted in each,
/// and one of them sums up (see exchange).
///
/// Threads: set up by one; then any.
class loop_count {
public:
    loop_count() = default;
    loop_count(const loop_count&) = delete;

    /// Rung when the loop has ended. Before the run.
    void tell(doorbell& entry) { entries_.push_back(&entry); }
    /// Others count, too: end() says when it is over. Before the run.
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

    // Both only rise.
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
