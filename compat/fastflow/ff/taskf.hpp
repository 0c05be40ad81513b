#pragma once

#include <algorithm>
#include <iosfwd>
#include <utility>

#include <ff/farm.hpp>
#include <ff/mapping_utils.hpp>
#include <ff/task_internals.hpp>

namespace ff {

/// Functions that run in parallel, in no order. Those that are added while it does not run are kept
/// until it does.
///
/// Threads: one at a time.
/// Failure: as ff_node: -1, with a sentence on stderr, if an exception came out of a task; tasks
///          that had not begun are left out then.
class ff_taskf {
public:
    explicit ff_taskf(int workers = static_cast<int>(ff_realNumCores()), size_t outstanding = 2048,
                      int = 0)
        : graph_(outstanding), workers_(workers) {}
    virtual ~ff_taskf() = default;

    /// Calls `function` with copies of `args`. Waits while too many have not ended.
    template <typename Function, typename... Args>
    void AddTask(const Function function, Args... args) {
        graph_.add({}, detail::bound_call(function, std::move(args)...));
    }
    virtual int run(bool = false) { return graph_.start(workers_); }
    /// Waits until all tasks have ended; then it does not run any more.
    virtual int wait() { return graph_.wait(); }
    virtual int run_then_freeze(ssize_t workers = -1) {
        const int started = graph_.start(workers > 0 ? workers : workers_);
        return std::min(started, graph_.wait());
    }
    virtual int run_and_wait_end() { return run_then_freeze(); }
    /// Milliseconds from the last start to the end of its tasks.
    double ffTime() const { return graph_.took(); }
    double ffwTime() const { return graph_.took(); }
    void ffStats(std::ostream&) {}
    size_t getNWorkers() const { return static_cast<size_t>(std::max<ssize_t>(workers_, 1)); }
    // Accepted, and without effect: as ff_node's, and all threads are its own.
    void no_mapping() {}
    void blocking_mode(bool = true) {}
    void cleanup_workers(bool = true) {}

private:
    detail::call_graph graph_;
    ssize_t workers_;
};

}  // namespace ff
