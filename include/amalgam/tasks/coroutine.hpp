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

/// A coroutine that gives a T: it starts when somebody waits for it, a ULT or thread by get(), a
/// coroutine by co_await, or when spawn_coroutine() hands it to a stream.
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
/// After each wait a coroutine goes on as a tasklet of the stream it waited on, or on the plain
/// thread that ended the wait if it waited on none. It must therefore wait by co_await only:
/// plain verbs throw error{invalid} there.
///
/// Owner:   owns the coroutine's frame. What the coroutine refers to, its arguments as well, must
///          live until it has ended.
/// Threads: one at a time.
/// Failure: get() and co_await throw what escaped from the coroutine, and error{invalid} when the
///          task is empty; get() throws it inside a tasklet, timer callback or poller too.
/// Cost:    the frame comes from a per-thread pool: no allocation in steady state. Waiting for
///          another task is a jump there and one back.
template <typename T = void>
class [[nodiscard]] task {
    static_assert(!std::is_reference_v<T>, "a task gives a value: use a pointer");

public:
    using promise_type = detail::task_promise<T>;

    /// For promise_type.
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

    /// Not empty: nobody has waited for it yet.
    bool valid() const noexcept { return frame_ != nullptr; }

    /// Runs it, parks the caller until it has ended, and gives what it gave.
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

    /// `co_await std::move(t)` runs it in place of the caller, which goes on at its end.
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

/// `co_await continue_in(where)`: the coroutine goes on as a unit of `where`. Throws error{invalid}
/// when no stream serves that pool.
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

/// Starts `what` as a unit of `where`; the future brings what it gives or throws.
///
/// Failure: throws error{invalid} when the task is empty, or no stream serves the pool.
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
