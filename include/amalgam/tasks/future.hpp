#pragma once

#include <coroutine>
#include <string>
#include <utility>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/tasks/detail/future_state.hpp>
#include <amalgam/tasks/extension/deadline.hpp>

namespace amalgam {

class any_future;

/// A value that will be available later. Waiting parks the ULT or plain thread; a coroutine may
/// co_await it instead.
///
/// Owner:   one of two sides of a shared state. Destroying a future before it is ready asks the
///          other side to cancel, if it can.
/// Threads: one at a time; any ULT or thread.
/// Failure: get() throws the failure set by the other side: amalgam::error or its exception. Every
///          member except valid() throws error{invalid} on an empty future. Waiting inside a
///          tasklet, timer callback or poller throws error{invalid}.
/// Cost:    the state comes from a per-thread pool: no allocation in steady state.
template <typename T>
class [[nodiscard]] future {
    using state = detail::future_state<T>;

public:
    using time_point = std::chrono::steady_clock::time_point;  ///< Of deadlines.

    future() = default;
    /// For layers that create their own states: takes over one reference.
    explicit future(state& shared) noexcept : state_(&shared) {}
    future(future&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
    future& operator=(future&& other) noexcept {
        future(std::move(other)).swap(*this);
        return *this;
    }
    ~future() {
        if (state_ == nullptr) return;
        state_->abandon();
        state_->drop_reference();
    }
    void swap(future& other) noexcept { std::swap(state_, other.state_); }

    /// Not empty: get() has not been called.
    bool valid() const noexcept { return state_ != nullptr; }
    /// Whether the value or failure is available, so that no wait blocks.
    bool ready() const { return checked().ready(); }

    /// Waits, and returns the outcome without throwing.
    status wait() {
        checked().wait();
        return state_->outcome();
    }
    /// False: the deadline passed first. Uses the clock of the caller's stream.
    bool wait_until(time_point deadline) { return checked().wait_until(deadline); }
    template <typename Rep, typename Period>
    bool wait_for(std::chrono::duration<Rep, Period> time) {
        return wait_until(detail::deadline_after(time));
    }

    /// Waits, then returns the value or throws the failure. The future is empty afterwards.
    T get() {
        state& done = checked();
        if (!done.ready()) done.wait();
        state_ = nullptr;
        const struct consumed {
            state& what;
            ~consumed() { what.drop_reference(); }
        } at_end{done};
        if constexpr (std::is_void_v<T>) {
            done.take();
        } else {
            return done.take();
        }
    }

    /// Asks the other side to cancel. The future still becomes ready: as canceled or, if it was too
    /// late, with its value. No effect if the other side cannot cancel.
    void cancel() { checked().abandon(); }

    /// `co_await std::move(f)` is get() for coroutines. The coroutine resumes as a tasklet of the
    /// stream it waits on or, if it waits on a plain thread, on the stream or plain thread that
    /// completes the future.
    auto operator co_await() && {
        checked();
        return awaiter{std::move(*this)};
    }

private:
    friend class any_future;
    struct awaiter : detail::coroutine_resumer {
        explicit awaiter(future what) noexcept : what_(std::move(what)) {}
        bool await_ready() const noexcept { return what_.state_->ready(); }
        bool await_suspend(std::coroutine_handle<> who) {
            prepare(who);
            return what_.state_->attach(*this);
        }
        T await_resume() { return what_.get(); }

    private:
        future what_;
    };

    state& checked() const {
        if (state_ == nullptr) {
            throw error(errc::invalid,
                        "this future is empty: get() was called already, or it was moved from; "
                        "call get() once and keep the value");
        }
        return *state_;
    }

    state* state_ = nullptr;
};

/// Sets the value of a future.
///
/// Owner:   the other side of the shared state. Destroyed without a value, it fails the future with
///          errc::canceled.
/// Threads: one at a time; any ULT or thread, including tasklets and pollers.
/// Failure: setting twice, or getting the future twice, throws error{invalid}.
template <typename T>
class promise {
    using state = detail::future_state<T>;

public:
    promise() : state_(new state) {}
    promise(promise&& other) noexcept
        : state_(std::exchange(other.state_, nullptr)), taken_(other.taken_), set_(other.set_) {}
    promise& operator=(promise&& other) noexcept {
        promise moved(std::move(other));
        std::swap(state_, moved.state_);
        std::swap(taken_, moved.taken_);
        std::swap(set_, moved.set_);
        return *this;
    }
    ~promise() {
        if (state_ == nullptr) return;
        if (!set_ && taken_) state_->fail_as_broken();
        state_->drop_reference();
    }

    future<T> get_future() {
        if (state_ == nullptr || taken_) {
            throw error(errc::invalid,
                        "this promise's future has been taken already; call get_future() once");
        }
        taken_ = true;
        state_->add_reference();
        return future<T>(*state_);
    }

    /// `hook(context)` runs at most once, on the future's side, if the future is destroyed or
    /// cancel()ed before it is ready. Call before get_future().
    void on_abandon(detail::future_core::abandon_hook hook, void* context) {
        unset().on_abandon(hook, context);
    }

    /// Makes the future ready, once, by a value or by why there is none.
    /// Failure: throws error{invalid} if it is ready already, or was moved from.
    template <typename... Arguments>
    void set_value(Arguments&&... arguments) {
        unset().set(std::forward<Arguments>(arguments)...);
        set_ = true;
    }
    void set_failure(failure why) {
        unset().fail(std::move(why));
        set_ = true;
    }
    void set_failure(errc code, std::string sentence) {
        set_failure(failure{{code}, std::move(sentence)});
    }
    void set_exception(std::exception_ptr why) {
        if (why == nullptr)
            throw error(errc::invalid, "set_exception() was given a null exception_ptr");
        unset().fail(std::move(why));
        set_ = true;
    }

private:
    state& unset() const {
        if (state_ == nullptr || set_) {
            throw error(errc::invalid, "this promise has been satisfied already; set it once");
        }
        return *state_;
    }

    state* state_;
    bool taken_ = false;
    bool set_ = false;
};

}  // namespace amalgam
