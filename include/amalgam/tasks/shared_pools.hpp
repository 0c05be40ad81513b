#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

#include <amalgam/tasks/detail/spin_lock.hpp>
#include <amalgam/tasks/detail/unit_list.hpp>
#include <amalgam/tasks/pool.hpp>

namespace amalgam {

/// What the pools that several streams may serve have in common: a spin lock, held for the few
/// pointers of one link, and a size that is looked at before the lock is taken.
///
/// Cost: a push or pop is one atomic exchange when nobody else is there.
class shared_pool : public pool {
public:
    void push(work_unit& unit) noexcept final;
    void push_by_priority(work_unit& unit) noexcept final;
    void requeue(work_unit& unit) noexcept final;
    work_unit* pop() noexcept final;
    bool remove(work_unit& unit) noexcept final;
    bool empty() const noexcept final;
    std::size_t size() const noexcept final { return size_.load(std::memory_order_relaxed); }

protected:
    explicit shared_pool() noexcept : pool(pool_access::any_stream) {}

private:
    enum class as { ready, yielded, by_priority };
    void add(work_unit& unit, as what) noexcept;
    // With the lock held.
    virtual void link(work_unit& unit, bool yielded) noexcept = 0;
    virtual void link_by_priority(work_unit& unit) noexcept = 0;
    virtual work_unit* unlink() noexcept = 0;
    virtual bool unlink(work_unit& unit) noexcept = 0;

    alignas(64) mutable detail::spin_lock busy_;
    std::atomic<std::size_t> size_{0};
};

/// First in, first out, for any number of streams.
class shared_fifo_pool final : public shared_pool {
public:
    ~shared_fifo_pool() override { drop_left(); }

private:
    void link(work_unit& unit, bool) noexcept override { units_.push_back(unit); }
    void link_by_priority(work_unit& unit) noexcept override { units_.push_by_priority(unit); }
    work_unit* unlink() noexcept override { return units_.pop_front(); }
    bool unlink(work_unit& unit) noexcept override;
    detail::unit_list units_;
};

/// Last in, first out: what was made last finds the caches warm. Who yields goes behind all.
class lifo_pool final : public shared_pool {
public:
    ~lifo_pool() override { drop_left(); }

private:
    void link(work_unit& unit, bool yielded) noexcept override;
    void link_by_priority(work_unit& unit) noexcept override { units_.push_by_priority(unit); }
    work_unit* unlink() noexcept override { return units_.pop_front(); }
    bool unlink(work_unit& unit) noexcept override;
    detail::unit_list units_;
};

/// The highest work_unit::priority first; first in, first out among equals.
///
/// Failure: throws error{invalid} for no level at all, or more than 256.
class priority_pool final : public shared_pool {
public:
    /// Priorities 0 to levels-1; a higher one counts as the highest.
    explicit priority_pool(std::size_t levels = 4);
    ~priority_pool() override { drop_left(); }

private:
    detail::unit_list& level_of(const work_unit& unit) noexcept;
    void link(work_unit& unit, bool) noexcept override { level_of(unit).push_back(unit); }
    void link_by_priority(work_unit& unit) noexcept override { link(unit, false); }
    work_unit* unlink() noexcept override;
    bool unlink(work_unit& unit) noexcept override;
    std::vector<detail::unit_list> levels_;
};

/// A deque: the stream that has it as its main pool takes what it made last, whose data is still
/// in its cache; others, who steal, take the oldest, which is most often the largest piece of work.
/// What yields or comes from outside waits in a queue beside it, of which thieves take first, and
/// its own stream when the deque is empty and every 16th time, so that nothing waits for ever.
/// What came by push_by_priority() goes before all of these.
class work_stealing_pool final : public shared_pool {
public:
    ~work_stealing_pool() override { drop_left(); }

private:
    void link(work_unit& unit, bool yielded) noexcept override;
    void link_by_priority(work_unit& unit) noexcept override { first_.push_by_priority(unit); }
    work_unit* unlink() noexcept override;
    bool unlink(work_unit& unit) noexcept override;
    detail::unit_list first_;  // by priority, for anybody
    detail::unit_list made_;   // newest in front
    detail::unit_list queue_;  // oldest in front
    unsigned turn_ = 0;
};

}  // namespace amalgam
