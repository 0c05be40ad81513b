#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ff/allocator.hpp>

namespace ff {

/// How a task uses what a param_info names. VALUE: by value, so that nothing depends on it.
enum data_direction_t { INPUT = 0, OUTPUT = 1, VALUE = 2 };
struct param_info {
    uintptr_t tag;  ///< An address, or any number that stands for the data.
    data_direction_t dir;
};

// Accepted, and without effect: tasks that are ready run in the order in which they became so.
struct CompareTask_Par {};
struct CompareTask_LIFO {};
struct CompareTask_FIFO {};

namespace detail {

/// Calls that run on threads, in the order that follows from what they read and write.
///
/// Threads: one at a time.
/// Failure: functions that return int return -1, with a sentence on stderr, if threads cannot be
///          started or an exception came out of a call; those that had not begun are left out then.
class call_graph {
public:
    explicit call_graph(size_t most_calls);
    ~call_graph();
    call_graph(const call_graph&) = delete;
    call_graph& operator=(const call_graph&) = delete;

    int start(ssize_t threads);
    /// Before start(), it is kept until then; later it waits while there are too many.
    void add(const std::vector<param_info>& uses, std::function<void()> call);
    /// Waits until all have ended. It can be started again.
    int wait();
    /// Milliseconds from the last start() to the end of its wait().
    double took() const;

private:
    struct state;
    std::unique_ptr<state> state_;
};

/// `function` with copies of `args`, which it gets as lvalues.
template <typename Function, typename... Args>
std::function<void()> bound_call(const Function& function, Args... args) {
    return [function, all = std::make_tuple(std::move(args)...)]() mutable {
        std::apply(function, all);
    };
}

}  // namespace detail

}  // namespace ff
