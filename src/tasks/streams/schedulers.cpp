#include <algorithm>
#include <exception>
#include <mutex>
#include <typeinfo>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/detail/in_words.hpp>
#include <amalgam/core/log.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/tasks/fifo_pool.hpp>
#include <amalgam/tasks/shared_pools.hpp>

#include "tasks/streams/forks.hpp"
#include "tasks/streams/stream.hpp"

// The schedulers of a stream, and the pools it serves for them.

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

bool stream::serves(const pool* what) const noexcept {
    return std::any_of(served_.begin(), served_.end(),
                       [&](const served& each) { return each.what == what; });
}

/// Attaches all or none.
void stream::attach_pools(const scheduler& of) {
    const auto pools = of.pools();
    if (pools.empty()) {
        throw error(errc::invalid, "a scheduler needs at least one pool");
    }
    std::size_t done = 0;
    const std::lock_guard whole_for_forks(lock_of_served());
    try {
        for (pool* each : pools) {
            const auto known = std::find_if(served_.begin(), served_.end(),
                                            [&](const served& s) { return s.what == each; });
            if (known != served_.end()) {
                ++known->times;
            } else {
                served_.push_back({each, 1});
                if (!each->attach(*this, bell_, done == 0)) {
                    served_.pop_back();
                    throw error(errc::invalid,
                                fmt::format("stream '{}' cannot serve a pool that another stream "
                                            "already serves: use a pool for several streams, such "
                                            "as shared_fifo_pool, or give each stream its own",
                                            options_.name));
                }
            }
            ++done;
        }
    } catch (...) {
        for (std::size_t i = 0; i < done; ++i)
            detach_pool(*pools[i]);
        throw;
    }
}

// Whatever its scheduler, a primary stream serves the pool that its thread's ULT lives in.
void stream::attach_own_pool() {
    const std::lock_guard whole_for_forks(lock_of_served());
    if (serves(&own_pool_)) {
        ++served_.front().times;  // it was the only one
    } else {
        served_.push_back({&own_pool_, 1});
        own_pool_.attach(*this, bell_, true);
    }
}

void stream::detach_pool(pool& what) noexcept {
    const auto known = std::find_if(served_.begin(), served_.end(),
                                    [&](const served& s) { return s.what == &what; });
    if (known == served_.end() || --known->times != 0) return;
    what.detach(*this);
    served_.erase(known);
}

void stream::detach_pools(const scheduler& of) noexcept {
    const std::lock_guard whole_for_forks(lock_of_served());
    for (pool* each : of.pools())
        detach_pool(*each);
}

void stream::detach_all() noexcept {
    const std::lock_guard whole_for_forks(lock_of_served());
    for (const served& each : served_)
        each.what->detach(*this);
    served_.clear();
}

void stream::use(scheduler& which) noexcept {
    order_ = &which;
    own_order_ = order_ == own_scheduler_;
    known_order_ = !options_.primary && is_known(which);
}

// Not inlined: see stay_in_parent().
[[gnu::noinline]] work_unit* stream::next_of_others() noexcept {
    work_unit* next = options_.primary ? own_pool_.pop() : nullptr;
    if (next == nullptr) next = order_->next();
    stay_in_parent();
    return next;
}

// Reported in stop(); they are kept, as one may own pools.
void stream::end_stacked() noexcept {
    for (std::size_t i = 1; i < orders_.size(); ++i) {
        promise<void> ended = std::move(orders_[i].ended);
        ended.set_failure(in_words(
            {errc::closed},
            "the stream that ran this scheduler was stopped before the scheduler finished"));
    }
}

void stream::use_top() noexcept {
    use(*orders_.back().order);
    main_pool_.store(orders_.front().order->pools().front(), std::memory_order_relaxed);
}

void stream::stack(std::unique_ptr<scheduler> order, promise<void> ended) noexcept {
    try {
        orders_.reserve(orders_.size() + 1);
        attach_pools(*order);
    } catch (...) {
        return ended.set_exception(std::current_exception());
    }
    orders_.push_back({std::move(order), std::move(ended)});
    use_top();
}

bool stream::unstack() noexcept {
    if (!order_->done()) return false;
    stacked top = std::move(orders_.back());
    orders_.pop_back();
    use_top();
    detach_pools(*top.order);
    top.ended.set_value();
    return true;
}

void stream::replace_bottom(std::unique_ptr<scheduler> order) {
    std::unique_ptr<scheduler>& bottom = orders_.front().order;
    for (const pool* old : bottom->pools()) {
        const auto kept = order->pools();
        if (std::find(kept.begin(), kept.end(), old) != kept.end()) continue;
        if (old->access() == pool_access::one_stream && (old->ults() != 0 || !old->empty())) {
            throw error(
                errc::invalid,
                fmt::format(
                    "stream '{}' would abandon {} ULTs in a pool that its new scheduler does not "
                    "serve: give the scheduler that pool too, or migrate or join the ULTs first",
                    options_.name, old->ults()));
        }
    }
    attach_pools(*order);
    std::swap(bottom, order);
    if (order.get() == own_scheduler_) own_scheduler_ = nullptr;
    use_top();
    detach_pools(*order);
}

void stream::replace_if_asked() noexcept {
    replacement* const asked = replacing_.exchange(nullptr, std::memory_order_acquire);
    if (asked == nullptr) return;
    try {
        if (stopping_.load(std::memory_order_relaxed)) {
            throw error(errc::closed,
                        fmt::format("stream '{}' was stopped before its scheduler was replaced",
                                    options_.name));
        }
        replace_bottom(std::move(asked->order));
    } catch (...) {
        asked->refused = std::current_exception();
    }
    asked->who.unpark();
}

void stream::replace_scheduler(std::unique_ptr<scheduler> order) {
    if (order == nullptr) {
        throw error(errc::invalid,
                    "the new scheduler is null; example: "
                    "std::make_unique<priority_scheduler>(std::vector<pool*>{&mine})");
    }
    refuse_forked();
    if (current() == this) return replace_bottom(std::move(order));
    if (options_.driven) {
        const driver mine(*this);
        return replace_bottom(std::move(order));
    }
    replacement mine{std::move(order), {}, nullptr};
    replacement* expected = nullptr;
    if (!replacing_.compare_exchange_strong(expected, &mine, std::memory_order_seq_cst)) {
        throw error(
            errc::invalid,
            fmt::format("the scheduler of stream '{}' is already being replaced", options_.name));
    }
    // Of this and stop(), the later one sees the other.
    if (stopping_.load(std::memory_order_seq_cst)) {
        replace_if_asked();
    } else {
        wake();
    }
    mine.who.waits_for("scheduler to be replaced");
    mine.who.park();
    if (mine.refused) std::rethrow_exception(mine.refused);
}

// Schedulers know the pool and would pop it.
void stream::lose_pool() noexcept {
    log(log_level::error, "tasks",
        "a pool was destroyed while a stream served it, so the stream was stopped: destroy the "
        "stream first, or give it another scheduler",
        {{"stream", options_.name}});
    try {
        stop_within(std::chrono::seconds(1));
    } catch (const error&) {
        if (current() != this) return;  // a primary stream's: nobody else can stop it
        detach_all();                   // by the stream's own work
    }
    orders_.clear();
    orders_.push_back({std::make_unique<priority_scheduler>(std::vector<pool*>{&own_pool_}), {}});
    own_scheduler_ = orders_.front().order.get();
    use_top();
    if (primary_) attach_own_pool();
}

}  // namespace amalgam::detail
