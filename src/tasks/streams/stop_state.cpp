#include "tasks/streams/stop_state.hpp"

#include <utility>

#include <amalgam/tasks/extension/deadline.hpp>

#include "tasks/dispatch/dispatcher.hpp"

namespace amalgam::detail {

bool stop_state::begin() noexcept {
    const std::lock_guard hold(lock_);
    if (stage_ != stage::open) return false;
    stage_ = stage::stopping;
    return true;
}

void stop_state::wait_for(stage what) {
    const dispatcher* const here = dispatcher::current();
    std::unique_lock hold(lock_);
    if (here != nullptr && here->running() == nullptr)
        return reached_.wait(hold, [&, life = lives_] { return stage_ >= what || lives_ != life; });
    if (stage_ >= what) return;
    waiting me{what, waiting_, {}};
    me.who.waits_for("stream to stop");
    waiting_ = &me;
    hold.unlock();
    me.who.park();
}

// A waiter for the last stage may destroy this stream as soon as it knows.
void stop_state::reach(stage what) noexcept {
    waiting* told = nullptr;
    {
        const std::lock_guard hold(lock_);
        stage_ = what;
        for (waiting** at = &waiting_; *at != nullptr;) {
            waiting& each = **at;
            if (each.until > what) {
                at = &each.next;
            } else {
                *at = each.next;
                each.next = std::exchange(told, &each);
            }
        }
        reached_.notify_all();
    }
    while (told != nullptr)
        std::exchange(told, told->next)->who.unpark();
}

bool stop_state::reached(stage what) const noexcept {
    const std::lock_guard hold(lock_);
    return stage_ >= what;
}

void stop_state::reopen() noexcept {
    const std::lock_guard hold(lock_);
    stage_ = stage::open;
    ++lives_;
    asked_.store(false, std::memory_order_seq_cst);
    gave_up_.store(false, std::memory_order_relaxed);
    by_.store(time_point::max().time_since_epoch().count(), std::memory_order_relaxed);
}

void stop_state::limit_to(std::chrono::nanoseconds from_now) noexcept {
    const auto by =
        deadline_after(from_now, std::chrono::steady_clock::now()).time_since_epoch().count();
    time_point::rep was = by_.load(std::memory_order_relaxed);
    while (by < was && !by_.compare_exchange_weak(was, by, std::memory_order_relaxed))
        continue;
}

bool stop_state::is_late() const noexcept {
    const time_point by{time_point::duration(by_.load(std::memory_order_relaxed))};
    return by != time_point::max() && std::chrono::steady_clock::now() >= by;
}

}  // namespace amalgam::detail
