#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <amalgam/tasks/fifo_pool.hpp>
#include <amalgam/tasks/pool.hpp>
#include <amalgam/tasks/scheduler.hpp>
#include <amalgam/tasks/work_unit.hpp>

#include "tasks/dispatch/join_state.hpp"
#include "tasks/limits.hpp"

namespace amalgam::detail {

class dispatcher;

/// A value that one thread writes and others read: relaxed loads and stores.
template <typename T>
class seen_by_others {
public:
    seen_by_others& operator=(T to) noexcept {
        value_.store(to, std::memory_order_relaxed);
        return *this;
    }
    void operator--() noexcept { *this = static_cast<T>(*this - 1); }
    operator T() const noexcept { return value_.load(std::memory_order_relaxed); }

private:
    std::atomic<T> value_{};
};

/// What a stream runs next: from its own pool, or as the scheduler on top says. A batch of units
/// ends when its budget is used up, so that pollers and timers get their turn.
///
/// Owns:    the stream's own pool. The scheduler belongs to scheduler_stack.
/// Threads: the stream's, but for budget(), main_pool() and owns(), which any may call.
class ready_work {
public:
    /// `own_pool_first`: whatever the scheduler says, for a primary stream.
    explicit ready_work(bool own_pool_first) noexcept : own_pool_first_(own_pool_first) {}

    /// Asks `which` from now on. `own`: its only pool is the own pool, so it need not be asked.
    void use(scheduler& which, bool own) noexcept;
    void set_main_pool(pool& which) noexcept {
        main_pool_.store(&which, std::memory_order_relaxed);
    }
    pool& main_pool() noexcept { return *main_pool_.load(std::memory_order_relaxed); }

    void begin_batch(std::size_t most) noexcept { budget_ = most; }
    std::size_t budget() const noexcept { return budget_; }
    void spend() noexcept { --budget_; }
    /// The batch that began when the own pool had counted `before` has run that many units.
    void count_batch(std::uint64_t before, std::size_t units) noexcept {
        if (own_order_) own_pool_.set_taken(before + units);
    }
    std::size_t batch() const noexcept { return batch_; }
    /// A whole batch took that many cycles().
    void adapt_batch(std::uint64_t took) noexcept;

    /// The next unit of the batch. Null: the budget is used up, or nothing is ready.
    [[gnu::always_inline]] work_unit* pick() noexcept {
        if (budget_ == 0) return nullptr;
        work_unit* const next = own_order_     ? own_pool_.pop_in_turn(budget_)
                                : known_order_ ? order_->next()
                                               : next_of_others();
        if (next != nullptr) --budget_;
        return next;
    }
    /// Whether `self`, which yields, may go on by rotate() instead of pick() and requeue().
    [[gnu::always_inline]] bool may_rotate(const work_unit& self) const noexcept {
        return own_order_ && budget_ != 0 && self.home() == &own_pool_;
    }
    /// Exchanges `self` for the next unit of the own pool; returns `self` if it is alone.
    [[gnu::always_inline]] work_unit* rotate(work_unit& self) noexcept {
        --budget_;
        return own_pool_.rotate(self, budget_);
    }
    /// Puts aside what a ULT has picked for the loop to run. Null: nothing.
    void stash(work_unit* picked) noexcept { stashed_ = picked; }
    work_unit* take_stashed() noexcept { return std::exchange(stashed_, nullptr); }
    bool has_stashed() const noexcept { return stashed_ != nullptr; }
    /// For the loop: what is stashed, else pick().
    [[gnu::always_inline]] work_unit* pick_stashed_first() noexcept {
        return stashed_ != nullptr ? std::exchange(stashed_, nullptr) : pick();
    }

    [[gnu::always_inline]] void requeue(work_unit& who) noexcept {
        pool* const home = who.home();
        if (home == &own_pool_) {
            own_pool_.push_own(who);
        } else {
            home->requeue(who);
        }
    }
    /// Adds a unit to its home. False: that is not the own pool, use the general path.
    bool push_own(work_unit& unit) noexcept {
        if (unit.home() != &own_pool_) return false;
        own_pool_.push_own(unit);
        return true;
    }
    /// The same for a new ULT, and counts it.
    template <typename Ult>
    bool start_own(Ult& who) noexcept {
        if (!push_own(who)) return false;
        who.made_at_home = true;  // it cannot run before the caller leaves
        own_pool_.add_own_ults(1);
        return true;
    }
    /// Another ULT has the own pool as its home.
    void count_own() noexcept { own_pool_.add_own_ults(1); }
    /// Queues a unit of any home in the own pool.
    void take_over(work_unit& unit) noexcept { own_pool_.push_own(unit); }

    fifo_pool& own_pool() noexcept { return own_pool_; }
    /// Whether who takes a unit from another pool itself does as pick() would: nothing goes first.
    bool may_pick_elsewhere() const noexcept {
        return budget_ != 0 && stashed_ == nullptr && (!own_pool_first_ || own_is_empty());
    }
    /// Whether no unit is ready, without asking the scheduler. False: it must be asked.
    bool is_known_empty() const noexcept { return own_order_ && has_no_own(); }
    /// The same of one that runs_own_only().
    bool has_no_own() const noexcept { return stashed_ == nullptr && own_is_empty(); }
    /// Whether a batch that was not full has left nothing but what others brought since.
    bool runs_own_only() const noexcept { return own_order_; }
    bool owns(const pool* what) const noexcept { return what == &own_pool_; }
    /// Whether units of `home` run on this stream, `here`, and nowhere else.
    bool alone_serves(const pool& home, const dispatcher& here) const noexcept {
        return &home == &own_pool_ || home.served_only_by(here);
    }

    /// The stream that has it as its main pool, or that alone serves it; or null. Any thread.
    static const dispatcher* main_server_of(const pool& what) noexcept {
        return what.own_.who.load(std::memory_order_relaxed);
    }
    static bool serves(const dispatcher& who, const pool& what) noexcept {
        return what.served_by(who);
    }
    /// Whether a stream with a thread serves it, and is not about to stop.
    static bool stays_served(const pool& what) noexcept {
        for (const pool::server* each = &what.own_; each != nullptr;
             each = each->next.load(std::memory_order_acquire)) {
            if (each->who.load() != nullptr && each->stays.load()) return true;
        }
        return false;
    }
    /// `here`: the calling stream, or null.
    static void count_ults(pool& in, std::ptrdiff_t more, const dispatcher* here) noexcept {
        if (here != nullptr && main_server_of(in) == here) {
            in.add_own_ults(more);
        } else {
            in.other_ults_.fetch_add(more, std::memory_order_relaxed);
        }
    }
    /// A ULT that this stream, `here`, ran has ended.
    [[gnu::always_inline]] void count_ended(pool& home, const dispatcher& here) noexcept {
        if (&home == &own_pool_) {
            own_pool_.add_own_ults(-1);
        } else {
            count_ults(home, -1, &here);
        }
    }

private:
    work_unit* next_of_others() noexcept;
    bool own_is_empty() const noexcept {
        return own_pool_.own_.empty() &&
               !fifo_pool::has_units(own_pool_.inbox_.load(std::memory_order_relaxed));
    }

    work_unit* stashed_ = nullptr;
    seen_by_others<std::size_t> budget_;  // units left in this batch
    scheduler* order_ = nullptr;
    bool own_order_ = false;    // only own_pool_: no virtual calls
    bool known_order_ = false;  // no user function chooses, and own_pool_ does not come first
    const bool own_pool_first_;
    std::size_t batch_ = limits::min_batch;
    std::atomic<pool*> main_pool_{nullptr};
    fifo_pool own_pool_;
};

}  // namespace amalgam::detail
