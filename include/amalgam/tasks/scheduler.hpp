#pragma once

#include <span>
#include <vector>

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
    /// Every pool that next() takes from; the same for the scheduler's whole life.
    virtual std::span<pool* const> pools() const noexcept = 0;
};

/// Takes from the first pool that has work, in the order given.
///
/// Failure: throws error{invalid} when no pool is given.
class basic_scheduler final : public scheduler {
public:
    explicit basic_scheduler(std::vector<pool*> pools);

    work_unit* next() noexcept override;
    std::span<pool* const> pools() const noexcept override { return pools_; }

private:
    std::vector<pool*> pools_;
};

}  // namespace amalgam
