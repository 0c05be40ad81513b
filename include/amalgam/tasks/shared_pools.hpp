#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <amalgam/tasks/detail/spin_lock.hpp>
#include <amalgam/tasks/detail/unit_list.hpp>
#include <amalgam/tasks/pool.hpp>

namespace amalgam {

/// Base of pools that several streams may serve: a spin lock, held for a few pointer writes, and a
/// size that is checked before locking.
///
/// Cost: one atomic exchange per push or pop when uncontended.
class shared_pool : public pool {
public:
    void push(work_unit& unit) noexcept final;
    void push_by_priority(work_unit& unit) noexcept final;
    void requeue(work_unit& unit) noexcept final;
    work_unit* pop() noexcept final;
    void push_many(std::span<work_unit* const> units) noexcept final;
    std::size_t pop_many(std::span<work_unit*> into) noexcept final;
    void visit(unit_visitor see) final;
    bool remove(work_unit& unit) noexcept final;
    bool empty() const noexcept final;
    std::size_t size() const noexcept final { return size_.load(std::memory_order_relaxed); }
    std::uint64_t taken() const noexcept final { return taken_.load(std::memory_order_relaxed); }

protected:
    explicit shared_pool() noexcept : pool(pool_access::any_stream) {}

private:
    enum class as { ready, yielded, by_priority };
    void add(work_unit& unit, as what) noexcept;
    /// With the lock held: that many units were unlinked.
    void count_out(std::size_t units) noexcept {
        size_.store(size_.load(std::memory_order_relaxed) - units, std::memory_order_relaxed);
        taken_.store(taken_.load(std::memory_order_relaxed) + units, std::memory_order_relaxed);
    }
    // Called with the lock held.
    virtual void link(work_unit& unit, bool yielded) noexcept = 0;
    virtual void link_by_priority(work_unit& unit) noexcept = 0;
    virtual work_unit* unlink() noexcept = 0;
    virtual bool unlink(work_unit& unit) noexcept = 0;
    virtual void walk(const unit_visitor&) const {}

    alignas(64) mutable detail::spin_lock busy_;
    // Written with the lock held.
    std::atomic<std::size_t> size_{0};
    std::atomic<std::uint64_t> taken_{0};
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
    void walk(const unit_visitor& see) const override { units_.visit(see); }
    detail::unit_list units_;
};

/// Last in, first out: the newest unit has warm caches. A unit that yields goes last.
class lifo_pool final : public shared_pool {
public:
    ~lifo_pool() override { drop_left(); }

private:
    void link(work_unit& unit, bool yielded) noexcept override;
    void link_by_priority(work_unit& unit) noexcept override { units_.push_by_priority(unit); }
    work_unit* unlink() noexcept override { return units_.pop_front(); }
    bool unlink(work_unit& unit) noexcept override;
    void walk(const unit_visitor& see) const override { units_.visit(see); }
    detail::unit_list units_;
};

/// Highest work_unit::priority first; first in, first out among equals.
///
/// Failure: throws error{invalid} for zero levels or more than 256.
class priority_pool final : public shared_pool {
public:
    /// Priorities 0 to levels-1; higher ones count as the highest.
    explicit priority_pool(std::size_t levels = 4);
    ~priority_pool() override { drop_left(); }

private:
    detail::unit_list& level_of(const work_unit& unit) noexcept;
    void link(work_unit& unit, bool) noexcept override { level_of(unit).push_back(unit); }
    void link_by_priority(work_unit& unit) noexcept override { link(unit, false); }
    work_unit* unlink() noexcept override;
    bool unlink(work_unit& unit) noexcept override;
    void walk(const unit_visitor& see) const override;
    std::vector<detail::unit_list> levels_;
};

/// A work-stealing deque. The stream whose main pool this is takes the newest unit, whose data is
/// still in its cache; thieves take the oldest, usually the largest piece of work. Units that yield
/// or come from outside wait in a separate queue. Thieves take from that queue first; the owner
/// does so when the deque is empty and on every 16th pop, so nothing starves. Units from
/// push_by_priority() go before all of these.
class work_stealing_pool final : public shared_pool {
public:
    ~work_stealing_pool() override { drop_left(); }

private:
    void link(work_unit& unit, bool yielded) noexcept override;
    void link_by_priority(work_unit& unit) noexcept override { first_.push_by_priority(unit); }
    work_unit* unlink() noexcept override;
    bool unlink(work_unit& unit) noexcept override;
    void walk(const unit_visitor& see) const override;
    detail::unit_list first_;  // by priority, for anyone
    detail::unit_list made_;   // newest in front
    detail::unit_list queue_;  // oldest in front
    unsigned turn_ = 0;
};

}  // namespace amalgam
