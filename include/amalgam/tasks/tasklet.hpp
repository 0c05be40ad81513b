#pragma once

#include <utility>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/extension/closure.hpp>
#include <amalgam/tasks/extension/deadline.hpp>
#include <amalgam/tasks/ult_state.hpp>

namespace amalgam {

/// A joinable piece of work that runs to completion on the stream's own stack. Cheaper than a ULT,
/// but must not wait: a wait throws error{invalid} inside it.
///
/// Owner:   owns the tasklet until it is joined; the destructor joins.
/// Threads: one at a time.
/// Failure: join() rethrows an exception that escaped from the body (the destructor logs it). It
///          throws error{invalid} if there is nothing to join, or inside another tasklet if it
///          would have to wait.
class tasklet {
public:
    tasklet() = default;
    /// Used by spawn_tasklet().
    explicit tasklet(detail::tasklet_core& core) noexcept : core_(&core) {}
    tasklet(tasklet&& other) noexcept : core_(std::exchange(other.core_, nullptr)) {}
    tasklet& operator=(tasklet&& other) noexcept {
        tasklet ended(std::exchange(core_, std::exchange(other.core_, nullptr)));
        return *this;
    }
    ~tasklet() {
        if (core_ != nullptr) end();
    }

    bool joinable() const noexcept { return core_ != nullptr; }
    /// Waits for the end; parks the calling ULT or thread.
    void join();
    /// Lets it run unjoined; an escaping exception is logged.
    void detach();

    /// Joins it if it has ended, and rethrows as join(). False: it has not.
    bool try_join();
    /// Joins it, unless `deadline` passes first: false. Uses the clock of the caller's stream.
    /// Unlike join(), it can be canceled, if a ULT calls it.
    bool join_until(std::chrono::steady_clock::time_point deadline);
    template <typename Rep, typename Period>
    bool join_for(std::chrono::duration<Rep, Period> time) {
        return join_until(detail::deadline_after(time));
    }
    /// Waits for the end as join() does, but keeps the handle; an escaped exception stays in it.
    void wait();
    /// What it is doing: `ready`, `running` or `ended`; another thread may have changed that by
    /// now. `ended` for an empty handle.
    ult_state state() const noexcept;
    /// Asks it not to run. It keeps its place in the pool; at its turn its body is destroyed, and
    /// join() throws error{canceled}. No effect if it has begun.
    void cancel();
    /// Runs `body()` in pool `where` by this handle, whose tasklet has ended (see wait()). An
    /// exception that the last body left is logged.
    /// Failure: throws error{invalid} unless it has ended, and as spawn_tasklet().
    template <typename Function>
    void revive(pool& where, Function&& body) {
        check_revivable();
        *this = tasklet(detail::launch_tasklet(where, std::forward<Function>(body), true));
    }
    template <typename Function>
    void revive(execution_stream& where, Function&& body) {
        revive(where.main_pool(), std::forward<Function>(body));
    }

private:
    explicit tasklet(detail::tasklet_core* core) noexcept : core_(core) {}
    void end() noexcept;
    void join_slowly();
    void check_revivable() const;

    detail::tasklet_core* core_ = nullptr;
};

/// Creates a tasklet that runs `body()` in pool `where`.
///
/// Failure: throws std::bad_alloc.
/// Cost:    no allocation in steady state: descriptor and closure share one pooled block.
template <typename Function>
tasklet spawn_tasklet(pool& where, Function&& body) {
    return tasklet(detail::launch_tasklet(where, std::forward<Function>(body), true));
}
template <typename Function>
tasklet spawn_tasklet(execution_stream& where, Function&& body) {
    return spawn_tasklet(where.main_pool(), std::forward<Function>(body));
}

/// As spawn_tasklet(), without a handle; an exception that escapes from `body` is logged.
template <typename Function>
void post_tasklet(pool& where, Function&& body) {
    detail::launch_tasklet(where, std::forward<Function>(body), false);
}
template <typename Function>
void post_tasklet(execution_stream& where, Function&& body) {
    post_tasklet(where.main_pool(), std::forward<Function>(body));
}

}  // namespace amalgam
