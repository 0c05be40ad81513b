#include "tasks/streams/scheduler_stack.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/detail/has_type.hpp>
#include <amalgam/core/detail/in_words.hpp>
#include <amalgam/core/log.hpp>
#include <amalgam/core/status.hpp>

#include "tasks/dispatch/ult_core.hpp"

namespace amalgam::detail {

scheduler_stack::stacked scheduler_stack::entry(std::unique_ptr<scheduler> order,
                                                promise<void> ended) {
    auto* const loop = cast_if_typed<looping_scheduler>(*order);
    return {std::move(order), std::move(ended), loop, nullptr};
}

void scheduler_stack::make_own() {
    orders_.push_back(
        entry(std::make_unique<priority_scheduler>(std::vector<pool*>{&work_.own_pool()}), {}));
    own_ = orders_.front().order.get();
}

void scheduler_stack::begin(std::unique_ptr<scheduler> bottom) {
    if (bottom == nullptr) {
        make_own();
    } else {
        orders_.push_back(entry(std::move(bottom), {}));
    }
    pools_.attach(top());
    use_top();
}

// Those that were posted may own pools that ULTs live in: they go with the stream, or the next
// time.
void scheduler_stack::begin_again(bool stays) {
    pools_.begin_again(stays);
    pools_.attach(*orders_.front().order);
    ended_.clear();
    while (is_stacked()) {
        ended_.push_back(std::move(orders_.back().order));
        orders_.pop_back();
    }
    orders_.front().failed = nullptr;
    use_top();
}

void scheduler_stack::use(scheduler& which) noexcept {
    work_.use(which, &which == own_);
}

void scheduler_stack::use_top() noexcept {
    const stacked& now = orders_.back();
    top_loop_ = now.failed ? nullptr : now.loop;
    const scheduler& order = *now.order;
    type_.store(&typeid(order), std::memory_order_relaxed);
    posted_.store(orders_.size() - 1, std::memory_order_relaxed);
    use(top_loop_ != nullptr ? gives_none_ : top());
    work_.set_main_pool(*orders_.front().order->pools().front());
}

void scheduler_stack::stack(std::unique_ptr<scheduler> order, promise<void> ended) noexcept {
    try {
        orders_.reserve(orders_.size() + 1);
        pools_.attach(*order);
    } catch (...) {
        return ended.set_exception(std::current_exception());
    }
    orders_.push_back(entry(std::move(order), std::move(ended)));
    use_top();
}

bool scheduler_stack::unstack() noexcept {
    if (!top().done()) return false;
    stacked last = std::move(orders_.back());
    orders_.pop_back();
    use_top();
    pools_.detach(*last.order);
    if (last.failed) {
        last.ended.set_exception(last.failed);
    } else {
        last.ended.set_value();
    }
    return true;
}

void scheduler_stack::fail(std::size_t depth, std::exception_ptr why) noexcept {
    log(log_level::error, "tasks",
        "an exception escaped from the run() of a scheduler, so the stream goes on by its next()",
        {{"stream", stream_}, {"what", describe(why)}});
    if (has_lost() || depth > orders_.size()) return;
    orders_[depth - 1].failed = std::move(why);
    use_top();
}

void scheduler_stack::end_stacked() noexcept {
    for (std::size_t i = 1; i < orders_.size(); ++i) {
        promise<void> ended = std::move(orders_[i].ended);
        if (orders_[i].failed) {
            ended.set_exception(orders_[i].failed);
            continue;
        }
        ended.set_failure(in_words(
            {errc::closed},
            "the stream that ran this scheduler was stopped before the scheduler finished"));
    }
}

void scheduler_stack::replace(std::unique_ptr<scheduler> order) {
    stacked& bottom = orders_.front();
    for (const pool* old : bottom.order->pools()) {
        const auto kept = order->pools();
        if (std::find(kept.begin(), kept.end(), old) != kept.end()) continue;
        if (old->access() == pool_access::one_stream && (old->ults() != 0 || !old->empty())) {
            throw error(errc::invalid,
                        fmt::format("stream '{}' would abandon {} ULTs in a pool that its new "
                                    "scheduler does not serve: give the scheduler that pool too, "
                                    "or migrate or join the ULTs first",
                                    stream_, old->ults()));
        }
    }
    pools_.attach(*order);
    const stacked before = std::exchange(bottom, entry(std::move(order), {}));
    if (before.order.get() == own_) own_ = nullptr;
    use_top();
    pools_.detach(*before.order);
}

void scheduler_stack::ask(request& what) {
    request* expected = nullptr;
    if (asked_.compare_exchange_strong(expected, &what, std::memory_order_seq_cst)) return;
    throw error(errc::invalid,
                fmt::format("the scheduler of stream '{}' is already being replaced", stream_));
}

void scheduler_stack::replace_if_asked(bool stopped) noexcept {
    // Not acquire alone: who asks later sees by it that the stream was stopped.
    request* const asked = asked_.exchange(nullptr, std::memory_order_seq_cst);
    if (asked == nullptr) return;
    try {
        if (stopped) {
            throw error(errc::closed, fmt::format("stream '{}' was stopped before its scheduler "
                                                  "was replaced",
                                                  stream_));
        }
        replace(std::move(asked->order));
    } catch (...) {
        asked->refused = std::current_exception();
    }
    asked->who.unpark();
}

// They know the pool and would pop it. Those in run() have yet to return from it.
void scheduler_stack::lose_all() {
    if (runs_loop()) {
        std::move(orders_.begin(), orders_.end(), std::back_inserter(lost_));
    }
    orders_.clear();
    make_own();
    use_top();
}

// Those below the top too: they must leave nothing behind, and their work may wake what the top
// waits for.
std::size_t scheduler_stack::run_batch_of_any(dispatcher& here) noexcept {
    std::size_t ran = 0;
    for (std::size_t i = orders_.size(); ran == 0 && i-- > 0;) {
        use(*orders_[i].order);
        ran = here.run_batch(work_.batch());
    }
    use_top();
    return ran;
}

bool scheduler_stack::bring_one() noexcept {
    bool any = !work_.own_pool().empty();
    for (std::size_t i = orders_.size(); !any && i-- > 0;) {
        if (work_unit* const unit = orders_[i].order->next()) {
            work_.take_over(*unit);
            any = true;
        }
    }
    return any;
}

}  // namespace amalgam::detail
