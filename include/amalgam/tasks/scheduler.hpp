#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <amalgam/core/random.hpp>
#include <amalgam/tasks/future.hpp>
#include <amalgam/tasks/pool.hpp>

namespace amalgam {

/// Chooses what a stream runs next. A user may write one.
///
/// Threads: called by its one stream only.
class scheduler {
public:
    scheduler() = default;
    scheduler(const scheduler&) = delete;
    scheduler& operator=(const scheduler&) = delete;
    virtual ~scheduler() = default;

    /// The next unit to run, or null when nothing is ready. Never waits.
    virtual work_unit* next() noexcept = 0;
    /// Every pool that next() takes from, the stream's main pool first; the same for the
    /// scheduler's whole life.
    virtual std::span<pool* const> pools() const noexcept = 0;
    /// Asked when nothing is ready and this scheduler is stacked on another one: true ends it.
    /// By default, when no pool of its own has a unit or a ULT left.
    virtual bool done() const noexcept;
};

/// A scheduler over pools that are given to it.
///
/// Failure: throws error{invalid} when no pool is given.
class pool_scheduler : public scheduler {
public:
    std::span<pool* const> pools() const noexcept final { return pools_; }

protected:
    explicit pool_scheduler(std::vector<pool*> pools);

    const std::vector<pool*> pools_;
};

/// Takes from its pools in turn, so that each gets its share.
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

/// Takes from its first pool, and, when that is empty, steals from one of the others, chosen at
/// random. What it steals moves to the first pool for good.
class work_stealing_scheduler final : public pool_scheduler {
public:
    explicit work_stealing_scheduler(std::vector<pool*> pools);
    work_unit* next() noexcept override;

private:
    work_unit* steal() noexcept;
    seeded_random random_;
};

/// A scheduler as a work unit: whichever stream takes it from `where` runs what `order` chooses
/// until `order` is done(), and then goes on with what it did before. Meanwhile nothing else runs
/// on that stream but timers and pollers. Schedulers stack to any depth.
///
/// The future is ready when it is done; error{invalid} when another stream serves one of its
/// pools that allows one stream only.
future<void> post_scheduler(pool& where, std::unique_ptr<scheduler> order);

}  // namespace amalgam
