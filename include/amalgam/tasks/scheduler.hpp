#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <amalgam/core/detail/memory.hpp>
#include <amalgam/core/random.hpp>
#include <amalgam/tasks/future.hpp>
#include <amalgam/tasks/pool.hpp>

namespace amalgam {

/// Chooses what a stream runs next. Users may write their own.
///
/// Threads: called only by its one stream.
class scheduler {
public:
    scheduler() = default;
    scheduler(const scheduler&) = delete;
    scheduler& operator=(const scheduler&) = delete;
    virtual ~scheduler() = default;

    /// The next unit to run, or null if nothing is ready. Must not wait, nor call list_ults(): the
    /// ULT that is being left may not have been saved yet.
    virtual work_unit* next() noexcept = 0;
    /// Every pool that next() takes from, the stream's main pool first. Constant for the
    /// scheduler's life.
    virtual std::span<pool* const> pools() const noexcept = 0;
    /// Called when nothing is ready and this scheduler is stacked on another; true ends it.
    /// Default: true once its pools hold no unit and no ULT.
    virtual bool done() const noexcept;
};

/// Base of schedulers over a given list of pools.
///
/// Failure: throws error{invalid} if the list is empty.
class pool_scheduler : public scheduler {
public:
    std::span<pool* const> pools() const noexcept final { return pools_; }

protected:
    explicit pool_scheduler(std::vector<pool*> pools);

    const std::vector<pool*> pools_;  ///< As given; not empty.
};

/// Takes from its pools in turn, so each gets its share.
class basic_scheduler final : public pool_scheduler {
public:
    explicit basic_scheduler(std::vector<pool*> pools) : pool_scheduler(std::move(pools)) {}
    work_unit* next() noexcept override;

private:
    std::size_t turn_ = 0;
};

/// Takes from the first pool that has work, in the order given.
class priority_scheduler final : public pool_scheduler {
public:
    explicit priority_scheduler(std::vector<pool*> pools) : pool_scheduler(std::move(pools)) {}
    work_unit* next() noexcept override;
};

/// Takes from its first pool. When that is empty, steals from a random other one; a stolen unit
/// moves to the first pool for good.
class work_stealing_scheduler final : public pool_scheduler {
public:
    explicit work_stealing_scheduler(std::vector<pool*> pools);
    work_unit* next() noexcept override;

private:
    work_unit* steal() noexcept;
    seeded_random random_;
};

/// Runs a scheduler as a work unit. The stream that pops it from `where` runs what `order` chooses
/// until `order` is done(), then resumes its previous scheduler. Meanwhile that stream runs nothing
/// else except timers and pollers. Schedulers stack to any depth.
///
/// The future is ready when it is done. It fails with error{invalid} if another stream serves one
/// of its single-stream pools.
future<void> post_scheduler(pool& where, std::unique_ptr<scheduler> order);

}  // namespace amalgam
