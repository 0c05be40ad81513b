#pragma once

#include <atomic>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/tasks/event.hpp>

namespace amalgam {

namespace detail {
[[noreturn]] void refuse_second_value();  // throws error{invalid}
}

/// A value that is set once and read by any number of ULTs, plain threads and coroutines, each as
/// soon as it is set. Reusable after reset(). For a single reader that takes the value, use a
/// future.
///
/// Owner:   owns the value; readers get a reference, valid until reset() or destruction.
/// Threads: any; tasklets may set(). May be destroyed as soon as a wait() returns, even if set()
///          has not, provided nobody calls it any more and timed or canceled waits have returned.
/// Failure: setting twice throws error{invalid}, as does waiting inside a tasklet, timer callback
///          or poller. If constructing the value throws, the setter gets the exception, and the
///          value may be set again.
/// Cost:    no allocation except by the value; reading a value that is set is a short lock.
template <typename T>
class eventual {
    using value_type = std::conditional_t<std::is_void_v<T>, std::monostate, T>;
    using reference = std::add_lvalue_reference_t<std::add_const_t<T>>;
    using coroutine_wait = detail::wait_operation<event>;

public:
    using time_point = event::time_point;  ///< Of deadlines.

    eventual() = default;
    eventual(const eventual&) = delete;
    eventual& operator=(const eventual&) = delete;

    /// Constructs the value from `arguments`; none if T is void.
    template <typename... Arguments>
    void set(Arguments&&... arguments) {
        if (taken_.exchange(true, std::memory_order_acquire)) detail::refuse_second_value();
        try {
            value_.emplace(std::forward<Arguments>(arguments)...);
        } catch (...) {
            taken_.store(false, std::memory_order_release);
            throw;
        }
        ready_.set();
    }
    /// Removes the value. Nobody may be waiting or still using it.
    void reset() noexcept {
        ready_.reset();
        value_.reset();
        taken_.store(false, std::memory_order_release);
    }
    bool ready() const noexcept { return ready_.is_set(); }

    reference wait() {
        ready_.wait();
        return value();
    }
    /// False: the deadline passed first. Uses the clock of the caller's stream.
    bool wait_until(time_point deadline) { return ready_.wait_until(deadline); }
    template <typename Rep, typename Period>
    bool wait_for(std::chrono::duration<Rep, Period> time) {
        return ready_.wait_for(time);
    }
    /// For coroutines: `co_await e.start_wait()`, as wait().
    auto start_wait() noexcept { return reading(*this); }

private:
    class [[nodiscard]] reading : public coroutine_wait {
    public:
        explicit reading(eventual& what) noexcept : coroutine_wait(what.ready_), what_(what) {}
        reference await_resume() const noexcept { return what_.value(); }

    private:
        eventual& what_;
    };

    reference value() const noexcept {
        if constexpr (!std::is_void_v<T>) return *value_;
    }

    std::atomic<bool> taken_{false};  // being set, or set
    std::optional<value_type> value_;
    event ready_;
};

}  // namespace amalgam
