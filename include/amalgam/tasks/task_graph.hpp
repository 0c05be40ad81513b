#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <type_traits>
#include <utility>

#include <amalgam/core/detail/memory.hpp>
#include <amalgam/tasks/parallel_streams.hpp>

namespace amalgam {

namespace detail {
class task_graph_core;

/// A task that was added, with what it runs. Owned by the graph.
struct graph_task;
struct prepared_graph_task {
    graph_task* task;
    void* body;
};
prepared_graph_task prepare_graph_task(std::size_t bytes, std::size_t align,
                                       void (*run)(void* body),
                                       void (*destroy)(void* body) noexcept);
void drop_graph_task(graph_task& task) noexcept;  // it has no body, or none any more
}  // namespace detail

/// Options of a task_graph.
struct task_graph_options {
    /// Tasks that were added and have not ended, at most; add() waits for room.
    std::size_t most_tasks = 2048;
    std::size_t stack_bytes = 0;  ///< Of a task, as in ult_options; 0: the pooled default.
};

/// Runs tasks in parallel, in an order that follows from the data they read and write: as if they
/// ran one after the other, as they were added. A task may wait, and add others.
///
///     am::task_graph graph(team);
///     graph.add({graph.in(a), graph.inout(b)}, [&] { b += a; });
///     graph.add({graph.in(a), graph.out(c)}, [&] { c = f(a); });   // beside the first
///     graph.add({graph.in(b), graph.inout(c)}, [&] { c += b; });   // after both
///     graph.wait();
///
/// Data is named by its address alone: name a tile by its first element, and always by the same.
///
/// Owner:   borrows the streams; owns the tasks until they have run. The destructor waits for them,
///          and logs an exception that nobody has seen; not in a task of its own.
/// Threads: any; tasks that several threads add are ordered as the adds are.
/// Failure: see add() and wait(). Throws error{invalid} for most_tasks of 0; add() does for a stack
///          below 16 KiB.
/// Cost:    add() allocates the task, and a list entry for each use. Ends and adds take turns at
/// one
///          lock.
class task_graph {
public:
    /// One piece of data that a task uses.
    struct use {
        const void* what;  ///< Its address.
        bool writes;       ///< False: it only reads.
    };
    template <typename T>
    static use in(const T& what) noexcept {
        return {&what, false};
    }
    /// As inout(): a writer waits for the readers before it, and nothing is renamed.
    template <typename T>
    static use out(T& what) noexcept {
        return {&what, true};
    }
    template <typename T>
    static use inout(T& what) noexcept {
        return {&what, true};
    }

    explicit task_graph(const parallel_streams& on, const task_graph_options& options = {});
    ~task_graph();
    task_graph(const task_graph&) = delete;
    task_graph& operator=(const task_graph&) = delete;

    /// Adds a task that runs `body()` in a ULT, once the tasks before it that write what it uses
    /// have ended, and for what it writes, those that read it. Waits while the graph is full, but
    /// not in a task of the same graph, which may exceed the bound. What a task spawns, or calls in
    /// parallel, is not that task: if it adds to a full graph while the task waits for it, neither
    /// goes on.
    ///
    /// Failure: throws std::bad_alloc, error{invalid} in a tasklet, timer callback or poller,
    ///          error{canceled} if the caller was canceled while it waited; and what
    ///          amalgam::post() throws, for example if no stream serves the pool. The task will not
    ///          run then.
    template <typename Body>
    void add(std::initializer_list<use> uses, Body&& body) {
        add(std::span<const use>(uses.begin(), uses.size()), std::forward<Body>(body));
    }
    template <typename Body>
    void add(std::span<const use> uses, Body&& body) {
        using closure = std::decay_t<Body>;
        static_assert(std::is_invocable_v<closure&>, "a task must be callable without arguments");
        const detail::prepared_graph_task made = detail::prepare_graph_task(
            sizeof(closure), alignof(closure), [](void* what) { (*static_cast<closure*>(what))(); },
            [](void* what) noexcept { static_cast<closure*>(what)->~closure(); });
        try {
            ::new (made.body) closure(std::forward<Body>(body));
        } catch (...) {
            detail::drop_graph_task(*made.task);
            throw;
        }
        add(uses, *made.task);
    }

    /// Waits until every task has ended. Throws the first exception of any task since the last
    /// wait(); tasks that had not begun by then were left out. The graph can be used again.
    /// Throws error{canceled} if tasks were left out because their pool was destroyed. Throws
    /// error{invalid} in a task of the same graph, error{canceled} if the caller was canceled; the
    /// tasks go on then.
    void wait();
    /// Leaves out the tasks that have not begun, and those that are added before the next wait(),
    /// which throws error{canceled} unless a task has failed before.
    void cancel() noexcept;
    /// Number of tasks that have been added and have not ended.
    std::size_t size() const noexcept;

private:
    void add(std::span<const use> uses, detail::graph_task& task);
    std::unique_ptr<detail::task_graph_core> core_;
};

}  // namespace amalgam
