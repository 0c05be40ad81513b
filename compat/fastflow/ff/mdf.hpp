#pragma once

#include <functional>
#include <iosfwd>
#include <utility>
#include <vector>

#include <ff/farm.hpp>
#include <ff/mapping_utils.hpp>
#include <ff/node.hpp>
#include <ff/pipeline.hpp>
#include <ff/task_internals.hpp>
#include <ff/utils.hpp>

namespace ff {

/// Macro data flow: a function of the program adds tasks, each with what it reads and writes; they
/// run in parallel as soon as what they use is there.
///
/// Threads: run by one thread, which also calls the function. Tasks do not add tasks.
/// Failure: as ff_node: -1, with a sentence on stderr, if an exception came out of a task or of the
///          function; tasks that had not begun are left out then.
class ff_mdf {
public:
    enum { DEFAULT_OUTSTANDING_TASKS = 2048 };

    /// `adds_tasks(args)` is called by each run; AddTask() waits while `outstanding` tasks have not
    /// ended.
    template <typename Args, typename Compare = CompareTask_Par>
    ff_mdf(void (*adds_tasks)(Args* const), Args* const args,
           size_t outstanding = DEFAULT_OUTSTANDING_TASKS,
           int workers = static_cast<int>(ff_realNumCores()), void (*)(unsigned long) = nullptr)
        : adds_tasks_([adds_tasks, args] { adds_tasks(args); }),
          graph_(outstanding),
          workers_(workers) {}
    virtual ~ff_mdf() = default;

    /// Calls `function` with copies of `args`. Only in the function that was given to the
    /// constructor.
    template <typename Function, typename... Args>
    void AddTask(std::vector<param_info>& uses, const Function function, Args... args) {
        graph_.add(uses, detail::bound_call(function, std::move(args)...));
    }
    void setNumWorkers(ssize_t workers) { workers_ = workers; }
    void setThreshold(size_t = 0) {}

    virtual int run_and_wait_end() { return run_then_freeze(); }
    virtual int run_then_freeze(ssize_t workers = -1);
    // Each run has ended when it returns.
    virtual int wait() { return 0; }
    virtual int wait_freezing() { return 0; }
    /// Milliseconds of the last run.
    double ffTime() const { return graph_.took(); }
    double ffwTime() const { return graph_.took(); }
    void ffStats(std::ostream&) {}
    // Accepted, and without effect: as ff_node's.
    void no_mapping() {}
    void blocking_mode(bool = true) {}

private:
    std::function<void()> adds_tasks_;
    detail::call_graph graph_;
    ssize_t workers_;
};

}  // namespace ff
