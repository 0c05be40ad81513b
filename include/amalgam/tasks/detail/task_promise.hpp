#pragma once

#include <coroutine>
#include <cstddef>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include <amalgam/tasks/detail/coroutine_unit.hpp>
#include <amalgam/tasks/detail/future_state.hpp>
#include <amalgam/tasks/extension/small_block.hpp>
#include <amalgam/tasks/parking.hpp>

namespace amalgam {

template <typename T>
class task;

namespace detail {

[[noreturn]] void refuse_empty_task();  // throws error{invalid}
void check_served(const pool& where);   // throws error{invalid}

/// State of a task's frame besides its value: who continues at the end.
class task_promise_base : public in_small_block {
public:
    void wake_at_end(waiter& who) noexcept { waiting_ = &who; }
    void continue_with(std::coroutine_handle<> who) noexcept { next_ = who; }

    std::suspend_always initial_suspend() const noexcept { return {}; }
    void unhandled_exception() noexcept { failed_ = std::current_exception(); }

    struct at_end {
        bool await_ready() const noexcept { return false; }
        template <typename Promise>
        std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> ended) const noexcept {
            task_promise_base& self = ended.promise();
            if (self.waiting_ == nullptr) return self.next_;
            self.waiting_->unpark();  // the frame may be gone from here on
            return std::noop_coroutine();
        }
        void await_resume() const noexcept {}
    };
    at_end final_suspend() const noexcept { return {}; }

protected:
    void throw_if_failed() const {
        if (failed_) std::rethrow_exception(failed_);
    }

private:
    std::coroutine_handle<> next_;
    waiter* waiting_ = nullptr;
    std::exception_ptr failed_;
};

template <typename T>
class task_promise final : public task_promise_base {
public:
    task<T> get_return_object() noexcept { return task<T>(*this); }
    template <typename Value>
    void return_value(Value&& value) {
        value_.emplace(std::forward<Value>(value));
    }
    T take() {
        throw_if_failed();
        return std::move(*value_);
    }

private:
    std::optional<T> value_;
};

template <>
class task_promise<void> final : public task_promise_base {
public:
    task<void> get_return_object() noexcept;
    void return_void() const noexcept {}
    void take() const { throw_if_failed(); }
};

/// Starts at once and frees itself when it ends.
struct free_coroutine {
    struct promise_type : in_small_block {
        free_coroutine get_return_object() const noexcept { return {}; }
        std::suspend_never initial_suspend() const noexcept { return {}; }
        std::suspend_never final_suspend() const noexcept { return {}; }
        void return_void() const noexcept {}
        [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }
    };
};

/// Continues as a unit of another pool.
class [[nodiscard]] hop {
public:
    explicit hop(pool& where) noexcept : where_(where) {}
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> who) noexcept {
        unit_.prepare_in(where_, who);
        unit_.make_ready();  // may already have resumed
    }
    void await_resume() const noexcept {}

private:
    pool& where_;
    coroutine_unit unit_;
};

}  // namespace detail

}  // namespace amalgam
