#include "tasks/dispatch/ready_work.hpp"

#include <algorithm>
#include <typeinfo>

#include <amalgam/tasks/shared_pools.hpp>

#include "tasks/dispatch/dispatcher.hpp"
#include "tasks/limits.hpp"

namespace amalgam::detail {

namespace {

template <typename... Known, typename What>
bool is_one_of(const What& what) noexcept {
    return ((typeid(what) == typeid(Known)) || ...);
}

/// The scheduler and its pools are the library's own, which do not fork.
bool is_known(const scheduler& which) noexcept {
    const auto pools = which.pools();
    return is_one_of<basic_scheduler, priority_scheduler, work_stealing_scheduler>(which) &&
           std::all_of(pools.begin(), pools.end(), [](const pool* each) {
               return is_one_of<fifo_pool, shared_fifo_pool, lifo_pool, priority_pool,
                                work_stealing_pool>(*each);
           });
}

}  // namespace

void ready_work::use(scheduler& which, bool own) noexcept {
    order_ = &which;
    own_order_ = own;
    known_order_ = !own_pool_first_ && is_known(which);
}

void ready_work::adapt_batch(std::uint64_t took) noexcept {
    constexpr std::uint64_t short_time = 4096, long_time = 4 * short_time;  // in cycles()
    if (took < short_time) {
        batch_ = std::min(2 * batch_, limits::max_batch);
    } else if (took > long_time) {
        batch_ = std::max(batch_ / 2, limits::min_batch);
    }
}

// Not inlined: see dispatcher::stay_in_parent().
[[gnu::noinline]] work_unit* ready_work::next_of_others() noexcept {
    work_unit* next = own_pool_first_ ? own_pool_.pop() : nullptr;
    if (next == nullptr) next = order_->next();
    dispatcher::stay_in_parent();
    return next;
}

}  // namespace amalgam::detail
