#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <amalgam/tasks/future.hpp>
#include <amalgam/tasks/parking.hpp>
#include <amalgam/tasks/scheduler.hpp>

#include "tasks/streams/served_pools.hpp"

namespace amalgam::detail {

/// The schedulers of a stream: one at the bottom, which can be replaced, and those stacked on it.
/// The topmost is asked what to run next.
///
/// Owns:    the schedulers, and the list of pools that the stream serves for them.
/// Threads: the stream's, or whoever makes, drives or stops it; ask() and asked() from any.
class scheduler_stack {
public:
    scheduler_stack(dispatcher& runs, bell& rings, const std::string& stream, bool stays) noexcept
        : pools_(runs, rings, stream, stays), work_(runs.work()), stream_(stream) {}

    /// Sets the first one; null: one made here, over the own pool.
    void begin(std::unique_ptr<scheduler> bottom);
    served_pools& pools() noexcept { return pools_; }
    const served_pools& pools() const noexcept { return pools_; }
    scheduler& top() noexcept { return *orders_.back().order; }
    bool is_stacked() const noexcept { return orders_.size() > 1; }

    /// Stacks `order` on the top until it is done.
    void stack(std::unique_ptr<scheduler> order, promise<void> ended) noexcept;
    /// False: the top is not done.
    bool unstack() noexcept;
    /// The stream was stopped. Those still stacked are kept, as one may own pools.
    void end_stacked() noexcept;

    /// Throws error{invalid} if ULTs would be left behind.
    void replace(std::unique_ptr<scheduler> bottom);
    /// A replacement that another thread asks the stream for.
    struct request {
        std::unique_ptr<scheduler> order;
        waiter who;
        std::exception_ptr refused;
    };
    /// Throws error{invalid} if there is one already.
    void ask(request& what);
    bool asked() const noexcept { return asked_.load(std::memory_order_relaxed) != nullptr; }
    /// As half of the protocol with a stream that goes to sleep: see bell.hpp.
    bool asked_before_sleep() const noexcept {
        return asked_.load(std::memory_order_seq_cst) != nullptr;
    }
    /// `stopped`: refuses.
    void replace_if_asked(bool stopped) noexcept;

    /// A pool of theirs is gone: leaves only one over the own pool.
    void lose_all();

    /// Runs one batch of the topmost one that has work; returns how many units ran.
    std::size_t run_batch_of_any(dispatcher& here) noexcept;
    /// Sees to it that the own pool has a unit, whichever scheduler gives it. False: no unit is
    /// ready.
    bool bring_one() noexcept;

private:
    struct stacked {
        std::unique_ptr<scheduler> order;
        promise<void> ended;
    };
    void make_own();
    void use(scheduler& which) noexcept;
    void use_top() noexcept;

    served_pools pools_;
    ready_work& work_;
    const std::string& stream_;
    std::vector<stacked> orders_;
    const scheduler* own_ = nullptr;  // made here, over the own pool
    std::atomic<request*> asked_{nullptr};
};

}  // namespace amalgam::detail
