#pragma once

#include <utility>

#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/extension/closure.hpp>

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

private:
    explicit tasklet(detail::tasklet_core* core) noexcept : core_(core) {}
    void end() noexcept;
    void join_slowly();

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
