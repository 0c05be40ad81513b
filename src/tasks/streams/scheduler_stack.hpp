#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <string>
#include <typeinfo>
#include <vector>

#include <amalgam/tasks/future.hpp>
#include <amalgam/tasks/looping_scheduler.hpp>
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
    // Of the top, from any thread.
    const std::type_info& type_seen() const noexcept {
        return *type_.load(std::memory_order_relaxed);
    }
    std::size_t posted_seen() const noexcept { return posted_.load(std::memory_order_relaxed); }
    std::size_t depth() const noexcept { return orders_.size(); }

    /// The top, if it has a run() of its own; or null.
    looping_scheduler* looping() const noexcept { return top_loop_; }
    /// While it exists, run() of the scheduler at the top is on the loop's stack.
    class running_loop;
    bool runs_loop() const noexcept { return running_loops_ != 0; }
    /// A pool of a scheduler whose run() has not returned yet is gone.
    bool has_lost() const noexcept { return !lost_.empty(); }
    /// run() of the one at that depth threw: from now on it is asked for next().
    void fail(std::size_t depth, std::exception_ptr why) noexcept;

    /// The stream starts again, with the one at the bottom. Throws error{invalid} if another stream
    /// serves one of its pools.
    void begin_again(bool stays);
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
        looping_scheduler* loop = nullptr;  // the same, if it has a run() of its own
        std::exception_ptr failed;          // what that threw
    };
    /// Below a run(), which alone gives out units.
    struct gives_none final : scheduler {
        work_unit* next() noexcept override { return nullptr; }
        std::span<pool* const> pools() const noexcept override { return {}; }
    };
    static stacked entry(std::unique_ptr<scheduler> order, promise<void> ended);
    void make_own();
    void use(scheduler& which) noexcept;
    void use_top() noexcept;

    served_pools pools_;
    ready_work& work_;
    const std::string& stream_;
    std::vector<stacked> orders_;
    const scheduler* own_ = nullptr;  // made here, over the own pool
    std::atomic<const std::type_info*> type_{&typeid(scheduler)};
    std::atomic<std::size_t> posted_{0};
    gives_none gives_none_;
    looping_scheduler* top_loop_ = nullptr;
    unsigned running_loops_ = 0;
    std::vector<std::unique_ptr<scheduler>>
        ended_;                  // their stream was stopped before they were done
    std::vector<stacked> lost_;  // some of these are still in run()
    std::atomic<request*> asked_{nullptr};
};

class scheduler_stack::running_loop {
public:
    explicit running_loop(scheduler_stack& of) noexcept : of_(of) { ++of_.running_loops_; }
    ~running_loop() {
        if (--of_.running_loops_ == 0) of_.lost_.clear();
    }
    running_loop(const running_loop&) = delete;
    running_loop& operator=(const running_loop&) = delete;

private:
    scheduler_stack& of_;
};

}  // namespace amalgam::detail
