#pragma once

#include <coroutine>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/tasks/detail/coroutine_unit.hpp>
#include <amalgam/tasks/extension/deadline.hpp>
#include <amalgam/tasks/timer.hpp>

namespace amalgam {

namespace detail {

/// Lives in the awaiting coroutine's frame.
class [[nodiscard]] sleep_operation : timer {
public:
    sleep_operation(execution_stream& where, time_point until) noexcept;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> who) noexcept;
    void await_resume() const noexcept {}

private:
    execution_stream& where_;
    time_point until_;
    coroutine_unit unit_;
};

}  // namespace detail

/// For coroutines: `co_await start_sleep_until(stream, when);` resumes at `when` on the clock of
/// `where`, as a unit of its main pool, whatever ran the coroutine before. ULTs and threads use
/// this_task::sleep_until().
///
/// Owner: `where` must live when the coroutine suspends, and its main pool until the coroutine
///        resumes. If `where` stops first, another stream ends the sleep: see
///        execution_stream::stop().
/// Cost:  no allocation.
inline auto start_sleep_until(execution_stream& where, execution_stream::time_point when) noexcept {
    return detail::sleep_operation(where, when);
}
template <typename Rep, typename Period>
auto start_sleep_for(execution_stream& where, std::chrono::duration<Rep, Period> time) noexcept {
    return detail::sleep_operation(where, detail::deadline_after(time, where.now()));
}

}  // namespace amalgam
