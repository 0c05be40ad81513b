#pragma once

#include <coroutine>
#include <exception>
#include <type_traits>
#include <utility>

#include <amalgam/tasks/detail/coroutine_unit.hpp>
#include <amalgam/tasks/detail/task_promise.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/future.hpp>

namespace amalgam {

/// A coroutine that returns a T. It starts when first waited for: by get() from a ULT or thread, by
/// co_await from a coroutine, or when spawn_coroutine() gives it to a stream.
///
///     task<int> sum_of(channel<int>& items) {
///         int sum = 0;
///         while (const auto item = co_await items.start_pop()) sum += *item;
///         co_return sum;
///     }
///     int total = sum_of(items).get();                      // in a ULT or thread
///     int total = co_await sum_of(items);                   // in a coroutine
///     future<int> total = spawn_coroutine(stream, sum_of(items));
///
/// After each wait a coroutine resumes as a tasklet of the stream it waited on; if it waited on a
/// plain thread, it resumes on the stream or plain thread that ended the wait. It must therefore
/// wait only with co_await: plain verbs throw error{invalid}.
///
/// Owner:   owns the coroutine's frame. Everything the coroutine refers to, including its
///          arguments, must live until it ends.
/// Threads: one at a time.
/// Failure: get() and co_await rethrow what escaped from the coroutine, and throw error{invalid} if
///          the task is empty; get() also inside a tasklet, timer callback or poller.
/// Cost:    frames come from a per-thread pool: no allocation in steady state. Awaiting another
///          task is one jump there and one back.
template <typename T = void>
class [[nodiscard]] task {
    static_assert(!std::is_reference_v<T>,
                  "a task's result must not be a reference: use a pointer");

public:
    using promise_type = detail::task_promise<T>;

    /// Used by promise_type.
    explicit task(promise_type& frame) noexcept : frame_(&frame) {}
    task(task&& other) noexcept : frame_(std::exchange(other.frame_, nullptr)) {}
    task& operator=(task&& other) noexcept {
        task(std::move(other)).swap(*this);
        return *this;
    }
    ~task() {
        if (frame_ != nullptr) handle().destroy();
    }
    void swap(task& other) noexcept { std::swap(frame_, other.frame_); }

    /// Whether there is a coroutine: true until it is waited for or moved from.
    bool valid() const noexcept { return frame_ != nullptr; }

    /// Runs it, parks the caller until it ends, and returns its result.
    T get() {
        if (frame_ == nullptr) detail::refuse_empty_task();
        waiter done;
        done.waits_for("coroutine");
        task mine(std::move(*this));
        mine.frame_->wake_at_end(done);
        mine.handle().resume();
        done.park();
        return mine.frame_->take();
    }

    /// `co_await std::move(t)` runs it; the caller resumes when it ends.
    auto operator co_await() && {
        if (frame_ == nullptr) detail::refuse_empty_task();
        return awaiter(std::move(*this));
    }

private:
    class awaiter {
    public:
        explicit awaiter(task what) noexcept : what_(std::move(what)) {}
        bool await_ready() const noexcept { return false; }
        std::coroutine_handle<> await_suspend(std::coroutine_handle<> who) noexcept {
            what_.frame_->continue_with(who);
            return what_.handle();
        }
        T await_resume() { return what_.frame_->take(); }

    private:
        task what_;
    };

    std::coroutine_handle<promise_type> handle() const noexcept {
        return std::coroutine_handle<promise_type>::from_promise(*frame_);
    }
    promise_type* frame_;
};

/// `co_await continue_in(where)`: the coroutine continues as a unit of `where`. Throws
/// error{invalid} if no stream serves that pool.
inline auto continue_in(pool& where) {
    detail::check_served(where);
    return detail::hop(where);
}

namespace detail {

template <typename T>
free_coroutine bring(pool& where, task<T> what, promise<T> brings) {
    co_await hop(where);
    try {
        if constexpr (std::is_void_v<T>) {
            co_await std::move(what);
            brings.set_value();
        } else {
            T value = co_await std::move(what);
            brings.set_value(std::move(value));
        }
    } catch (...) {
        brings.set_exception(std::current_exception());
    }
}

}  // namespace detail

/// Starts `what` as a unit of `where`; the future gets its result or exception.
///
/// Failure: throws error{invalid} if the task is empty or no stream serves the pool.
template <typename T>
future<T> spawn_coroutine(pool& where, task<T> what) {
    if (!what.valid()) detail::refuse_empty_task();
    detail::check_served(where);
    promise<T> brings;
    future<T> later = brings.get_future();
    detail::bring(where, std::move(what), std::move(brings));
    return later;
}
template <typename T>
future<T> spawn_coroutine(execution_stream& where, task<T> what) {
    return spawn_coroutine(where.main_pool(), std::move(what));
}

}  // namespace amalgam
