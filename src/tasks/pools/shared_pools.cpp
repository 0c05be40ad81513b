#include <algorithm>
#include <array>
#include <mutex>

#include <fmt/format.h>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/shared_pools.hpp>

#include "tasks/dispatch/dispatcher.hpp"

namespace amalgam {

using detail::dispatcher;

namespace {

bool take_out(detail::unit_list& of, work_unit& unit) noexcept {
    if (!of.holds(unit)) return false;
    of.remove(unit);
    return true;
}

}  // namespace

void shared_pool::add(work_unit& unit, as what) noexcept {
    detail::bell* sleeping = nullptr;
    {
        // Once unlocked, the unit may run, and end the life of this pool.
        const std::lock_guard hold(busy_);
        if (what == as::by_priority) {
            link_by_priority(unit);
        } else {
            link(unit, what == as::yielded);
        }
        size_.store(size_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        sleeping = claim_sleeper();
    }
    wake(sleeping);
}

void shared_pool::push(work_unit& unit) noexcept {
    add(unit, as::ready);
}

void shared_pool::push_by_priority(work_unit& unit) noexcept {
    add(unit, as::by_priority);
}

void shared_pool::requeue(work_unit& unit) noexcept {
    add(unit, as::yielded);
}

work_unit* shared_pool::pop() noexcept {
    if (size_.load(std::memory_order_relaxed) == 0) return nullptr;
    const std::lock_guard hold(busy_);
    work_unit* const unit = unlink();
    if (unit != nullptr) count_out(1);
    return unit;
}

// A stream that sleeps is woken for each unit, as by as many pushes.
void shared_pool::push_many(std::span<work_unit* const> units) noexcept {
    std::array<detail::bell*, 8> sleeping{};
    while (!units.empty()) {
        const auto some = units.first(std::min(units.size(), sleeping.size()));
        units = units.subspan(some.size());
        {
            // The last unlock may be the last of this pool, as in add().
            const std::lock_guard hold(busy_);
            for (work_unit* each : some)
                link(*each, false);
            size_.store(size_.load(std::memory_order_relaxed) + some.size(),
                        std::memory_order_relaxed);
            for (std::size_t i = 0; i < some.size(); ++i)
                sleeping[i] = claim_sleeper();
        }
        for (detail::bell* each : std::span(sleeping).first(some.size()))
            wake(each);
    }
}

std::size_t shared_pool::pop_many(std::span<work_unit*> into) noexcept {
    if (size_.load(std::memory_order_relaxed) == 0) return 0;
    const std::lock_guard hold(busy_);
    std::size_t taken = 0;
    while (taken < into.size()) {
        work_unit* const unit = unlink();
        if (unit == nullptr) break;
        into[taken++] = unit;
    }
    count_out(taken);
    return taken;
}

void shared_pool::visit(unit_visitor see) {
    const std::lock_guard hold(busy_);
    walk(see);
}

bool shared_pool::remove(work_unit& unit) noexcept {
    const std::lock_guard hold(busy_);
    if (!unlink(unit)) return false;
    count_out(1);
    return true;
}

// Under the lock: of a push and a stream going to sleep, the later one sees the other.
bool shared_pool::empty() const noexcept {
    const std::lock_guard hold(busy_);
    return size_.load(std::memory_order_relaxed) == 0;
}

bool shared_fifo_pool::unlink(work_unit& unit) noexcept {
    return take_out(units_, unit);
}

void lifo_pool::link(work_unit& unit, bool yielded) noexcept {
    yielded ? units_.push_back(unit) : units_.push_front(unit);
}

bool lifo_pool::unlink(work_unit& unit) noexcept {
    return take_out(units_, unit);
}

priority_pool::priority_pool(std::size_t levels) {
    if (levels == 0 || levels > 256) {
        throw error(errc::invalid, fmt::format("a priority pool cannot have {} levels, expected 1 "
                                               "to 256; example: priority_pool(4)",
                                               levels));
    }
    levels_.resize(levels);
}

detail::unit_list& priority_pool::level_of(const work_unit& unit) noexcept {
    return levels_[std::min<std::size_t>(unit.priority, levels_.size() - 1)];
}

work_unit* priority_pool::unlink() noexcept {
    for (auto each = levels_.rbegin(); each != levels_.rend(); ++each) {
        if (!each->empty()) return each->pop_front();
    }
    return nullptr;
}

void priority_pool::walk(const unit_visitor& see) const {
    for (auto each = levels_.rbegin(); each != levels_.rend(); ++each)
        each->visit(see);
}

bool priority_pool::unlink(work_unit& unit) noexcept {
    return take_out(level_of(unit), unit);
}

void work_stealing_pool::link(work_unit& unit, bool yielded) noexcept {
    !yielded&& dispatcher::calls_for(*this) ? made_.push_front(unit) : queue_.push_back(unit);
}

work_unit* work_stealing_pool::unlink() noexcept {
    constexpr unsigned fairness = 16;
    if (!first_.empty()) return first_.pop_front();
    const bool own = dispatcher::calls_for(*this);
    const bool queue_first = !own || ++turn_ % fairness == 0;
    if (queue_first && !queue_.empty()) return queue_.pop_front();
    work_unit* const made = own ? made_.pop_front() : made_.pop_back();
    return made != nullptr ? made : queue_.pop_front();
}

void work_stealing_pool::walk(const unit_visitor& see) const {
    for (const detail::unit_list* each : {&first_, &queue_, &made_})
        each->visit(see);
}

bool work_stealing_pool::unlink(work_unit& unit) noexcept {
    return take_out(made_, unit) || take_out(queue_, unit) || take_out(first_, unit);
}

}  // namespace amalgam
