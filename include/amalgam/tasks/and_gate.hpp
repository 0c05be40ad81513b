#pragma once

#include <cstddef>
#include <mutex>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/core/detail/function.hpp>
#include <amalgam/tasks/detail/spin_lock.hpp>
#include <amalgam/tasks/event.hpp>

namespace amalgam {

namespace detail {
[[noreturn]] void refuse_surplus_value();  // throws error{invalid}
}

/// Collects a fixed number of values from any setters; opens for all waiters once the last value is
/// set. Argobots calls this a future; the name comes from dataflow machines. To count without
/// values, use a latch.
///
///     and_gate<double> sums(4, [](std::span<double> all) { all[0] = add(all); });
///     for (int i = 0; i < 4; ++i) post(stream, [&, i] { sums.set(sum_of_part(i)); });
///     use(sums.wait()[0]);
///
/// Owner:   owns the values; readers get a view, valid until reset() or destruction.
/// Threads: any; tasklets may set(). May be destroyed as soon as a wait() returns, even if set()
///          has not, provided nobody calls it any more and timed or canceled waits have returned.
/// Failure: setting more values than expected throws error{invalid}, as does waiting inside a
///          tasklet, timer callback or poller. An exception from `on_open` goes to the last setter;
///          the gate still opens.
/// Cost:    after construction, no allocation except by the values. set() is a short lock and one
///          move under it; that move must not wait or use the gate.
template <typename T>
class and_gate {
    static_assert(std::is_object_v<T> && std::is_move_constructible_v<T>);
    static_assert(!std::is_same_v<T, bool>,
                  "and_gate<bool> is not supported, as std::vector<bool> packs bits: use char");
    using coroutine_wait = detail::wait_operation<event>;

public:
    using time_point = event::time_point;  ///< Of deadlines.
    /// Takes all values, in order of arrival; may change them.
    using callback = std::function<void(std::span<T>)>;

    /// `on_open` runs in the last set(), before any waiter continues. With 0 values the gate is
    /// open and `on_open` does not run.
    explicit and_gate(std::size_t values, callback on_open = {})
        : missing_(values), on_open_(std::move(on_open)) {
        values_.reserve(values);
        if (values == 0) open_.set();
    }
    and_gate(const and_gate&) = delete;
    and_gate& operator=(const and_gate&) = delete;

    /// Adds a value. Values are kept in order of arrival.
    void set(T value) {
        {
            const std::lock_guard hold(busy_);
            if (missing_ == 0) detail::refuse_surplus_value();
            values_.push_back(std::move(value));
            if (--missing_ != 0) return;
        }
        struct opens {
            event& gate;
            ~opens() { gate.set(); }
        } const at_end{open_};
        if (on_open_) on_open_(values_);
    }
    /// Closes the gate to collect the same number of values again. Nobody may be waiting or still
    /// using the values.
    void reset() noexcept {
        if (values_.empty()) return;
        open_.reset();
        missing_ += values_.size();
        values_.clear();
    }
    bool ready() const noexcept { return open_.is_set(); }

    std::span<const T> wait() {
        open_.wait();
        return values_;
    }
    /// False: the deadline passed first. Uses the clock of the caller's stream.
    bool wait_until(time_point deadline) { return open_.wait_until(deadline); }
    template <typename Rep, typename Period>
    bool wait_for(std::chrono::duration<Rep, Period> time) {
        return open_.wait_for(time);
    }
    /// For coroutines: `co_await g.start_wait()`, as wait().
    auto start_wait() noexcept { return reading(*this); }

private:
    class [[nodiscard]] reading : public coroutine_wait {
    public:
        explicit reading(and_gate& what) noexcept : coroutine_wait(what.open_), what_(what) {}
        std::span<const T> await_resume() const noexcept { return what_.values_; }

    private:
        and_gate& what_;
    };

    detail::spin_lock busy_;
    std::size_t missing_;
    std::vector<T> values_;
    callback on_open_;
    event open_;
};

}  // namespace amalgam
