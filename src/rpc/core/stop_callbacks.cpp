#include "rpc/core/stop_callbacks.hpp"

#include <algorithm>
#include <utility>

#include <amalgam/core/status.hpp>
#include <amalgam/rpc/extension/thrown.hpp>
#include <amalgam/tasks/extension/local.hpp>
#include <amalgam/tasks/parking.hpp>

namespace amalgam::detail {

namespace {

/// Differs between any two ULTs and threads.
const void* this_task_id() noexcept {
    return &task_local();
}

}  // namespace

std::uint64_t stop_callbacks::add(stop_phase when, std::function<void()> function) {
    const bool stopping = when == stop_phase::stopping;
    if (!function) {
        throw error(errc::invalid, stopping ? "on_stopping() was given an empty function"
                                            : "on_stopped() was given an empty function");
    }
    const std::lock_guard hold(lock_);
    if (over_[static_cast<std::size_t>(when)]) {
        throw error(errc::closed,
                    "this engine has been stopped, so the function would never run: "
                    "add it before stop()");
    }
    all_.push_back({++last_, when, std::move(function)});
    return last_;
}

bool stop_callbacks::remove(std::uint64_t number) noexcept {
    std::function<void()> gone;  // Destroyed outside the lock: it is the user's.
    const std::lock_guard hold(lock_);
    const auto found = std::find_if(all_.begin(), all_.end(),
                                    [number](const entry& each) { return each.number == number; });
    if (found == all_.end()) return false;
    gone.swap(found->run);
    all_.erase(found);
    return true;
}

bool stop_callbacks::run_stopping() noexcept {
    {
        const std::lock_guard hold(lock_);
        if (begun_) return over_[static_cast<std::size_t>(stop_phase::stopping)];
        begun_ = true;
    }
    run_all(stop_phase::stopping, "a function given to on_stopping()");
    told_.set();
    return true;
}

void stop_callbacks::wait_until_told() {
    const cancel_later it_must_not_throw;  // The caller may be ~engine().
    told_.wait();
}

void stop_callbacks::run_stopped() noexcept {
    run_all(stop_phase::stopped, "a function given to on_stopped()");
}

bool stop_callbacks::running_here() const noexcept {
    const std::lock_guard hold(lock_);
    return runner_ != nullptr && runner_ == this_task_id();
}

void stop_callbacks::run_all(stop_phase when, std::string_view what) noexcept {
    while (const std::function<void()> next = take(when)) {
        try {
            next();
        } catch (...) {
            log_thrown(what, {});
        }
    }
}

std::function<void()> stop_callbacks::take(stop_phase when) noexcept {
    std::function<void()> next;
    const std::lock_guard hold(lock_);
    const auto last = std::find_if(all_.rbegin(), all_.rend(),
                                   [when](const entry& each) { return each.when == when; });
    if (last == all_.rend()) {
        over_[static_cast<std::size_t>(when)] = true;
        runner_ = nullptr;
        return next;
    }
    runner_ = this_task_id();
    next.swap(last->run);
    all_.erase(std::next(last).base());
    return next;
}

}  // namespace amalgam::detail
