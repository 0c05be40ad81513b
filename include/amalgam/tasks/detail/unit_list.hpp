#pragma once

#include <cstddef>
#include <utility>

#include <amalgam/tasks/work_unit.hpp>

namespace amalgam::detail {

/// An intrusive list of units; the building block of pools.
///
/// Threads: one at a time. holds() may be called for a unit that others move.
class unit_list {
public:
    bool empty() const noexcept { return first_ == nullptr; }
    work_unit* front() const noexcept { return first_; }

    void push_back(work_unit& unit) noexcept {
        unit.next_in_pool = nullptr;
        unit.prev_in_pool = last_;
        unit.listed_in.store(this, std::memory_order_relaxed);
        (last_ == nullptr ? first_ : last_->next_in_pool) = &unit;
        last_ = &unit;
    }
    void push_front(work_unit& unit) noexcept {
        unit.prev_in_pool = nullptr;
        unit.next_in_pool = first_;
        unit.listed_in.store(this, std::memory_order_relaxed);
        (first_ == nullptr ? last_ : first_->prev_in_pool) = &unit;
        first_ = &unit;
    }
    template <typename See>
    void visit(const See& see) const {
        for (const work_unit* each = first_; each != nullptr; each = each->next_in_pool)
            see(*each);
    }
    /// Inserts before the first unit of lower priority. Cost: one step per unit before it.
    void push_by_priority(work_unit& unit) noexcept {
        work_unit* at = first_;
        while (at != nullptr && at->priority >= unit.priority)
            at = at->next_in_pool;
        if (at == nullptr) return push_back(unit);
        if (at == first_) return push_front(unit);
        unit.prev_in_pool = at->prev_in_pool;
        unit.next_in_pool = at;
        unit.listed_in.store(this, std::memory_order_relaxed);
        at->prev_in_pool->next_in_pool = &unit;
        at->prev_in_pool = &unit;
    }
    work_unit* pop_front() noexcept {
        work_unit* const unit = first_;
        if (unit == nullptr) return nullptr;
        first_ = unit->next_in_pool;
        (first_ == nullptr ? last_ : first_->prev_in_pool) = nullptr;
        unit->listed_in.store(nullptr, std::memory_order_relaxed);
        return unit;
    }
    /// push_back() and pop_front() on a list of one unit, without reading what was just written.
    /// Null: there is more than one unit.
    work_unit* replace_only(work_unit& by) noexcept {
        work_unit* const only = first_;
        if (only != last_) return nullptr;
        only->listed_in.store(nullptr, std::memory_order_relaxed);
        by.next_in_pool = by.prev_in_pool = nullptr;
        by.listed_in.store(this, std::memory_order_relaxed);
        first_ = last_ = &by;
        return only;
    }
    work_unit* pop_back() noexcept {
        work_unit* const unit = last_;
        if (unit != nullptr) remove(*unit);
        return unit;
    }
    /// Only this list stores its own address, so the answer is right for any caller allowed to use
    /// the other members.
    bool holds(const work_unit& unit) const noexcept {
        return unit.listed_in.load(std::memory_order_relaxed) == this;
    }
    void remove(work_unit& unit) noexcept {
        (unit.prev_in_pool == nullptr ? first_ : unit.prev_in_pool->next_in_pool) =
            unit.next_in_pool;
        (unit.next_in_pool == nullptr ? last_ : unit.next_in_pool->prev_in_pool) =
            unit.prev_in_pool;
        unit.listed_in.store(nullptr, std::memory_order_relaxed);
    }

private:
    work_unit* first_ = nullptr;
    work_unit* last_ = nullptr;
};

}  // namespace amalgam::detail
