#pragma once

#include <atomic>
#include <chrono>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include <amalgam/tasks/event.hpp>

namespace amalgam {

namespace detail {
[[noreturn]] void refuse_second_value();  // throws error{invalid}
}

/// A value that one brings and any number of ULTs, plain threads and coroutines read, each as
/// soon as it is there. It can be used again after reset(). A future is for one reader, which
/// takes the value.
///
/// Owner:   owns the value; readers get a reference that lasts until reset() or the end.
/// Threads: any; tasklets may set(). May be destroyed as soon as a wait() returned, even when
///          set() has not, if nobody else calls it any more; timed or canceled waits must have
///          returned.
/// Failure: setting twice throws error{invalid}; so does waiting inside a tasklet, timer callback
///          or poller. What making the value throws goes to who sets; another may set it then.
/// Cost:    no allocation but the value's own; reading what is there is a short lock.
template <typename T>
class eventual {
    using value_type = std::conditional_t<std::is_void_v<T>, std::monostate, T>;
    using reference = std::add_lvalue_reference_t<std::add_const_t<T>>;
    using coroutine_wait = detail::wait_operation<event>;

public:
    using time_point = event::time_point;

    eventual() = default;
    eventual(const eventual&) = delete;
    eventual& operator=(const eventual&) = delete;

    /// Makes the value from `arguments`; none when T is void.
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
    /// As new. Nobody may wait for it, or still use the value.
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
    /// False: not there by then. Timed by the clock of the caller's stream.
    bool wait_until(time_point deadline) { return ready_.wait_until(deadline); }
    template <typename Rep, typename Period>
    bool wait_for(std::chrono::duration<Rep, Period> time) {
        return ready_.wait_for(time);
    }
    /// For coroutines: `co_await e.start_wait()` gives what wait() does.
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

    std::atomic<bool> taken_{false};  // somebody sets it, or has
    std::optional<value_type> value_;
    event ready_;
};

}  // namespace amalgam
