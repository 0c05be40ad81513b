#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include <amalgam/tasks/task_graph.hpp>

namespace amalgam::detail {

struct graph_datum;

/// A task of a graph; its body follows in the same memory.
struct graph_task {
    void (*run)(void* body);
    void (*destroy)(void* body) noexcept;
    void* body;
    std::size_t align;                     ///< Of the memory.
    std::uint64_t number = 0;              ///< Unique in its graph, from 1.
    std::size_t waits_for = 0;             ///< Tasks that must end first.
    bool has_room = false;                 ///< Counts for the bound.
    graph_task* next = nullptr;            ///< In a list of ready ones.
    std::vector<graph_task*> before = {};  ///< Tasks that wait for this one.
    std::vector<graph_datum*> data = {};   ///< Where it is listed.
};

/// What is known of one address, as long as some task that uses it has not ended.
struct graph_datum {
    const void* what = nullptr;
    graph_task* writer = nullptr;           ///< The last one; null: none, or it has ended.
    std::vector<graph_task*> readers = {};  ///< Since then, and not ended.
    std::uint64_t last_number = 0;          ///< Of the task that was listed last.
};

/// Tasks that are ready, first in, first out.
class ready_list {
public:
    bool empty() const noexcept { return first_ == nullptr; }
    void push(graph_task& task) noexcept {
        task.next = nullptr;
        (first_ == nullptr ? first_ : last_->next) = &task;
        last_ = &task;
    }
    graph_task* pop() noexcept {
        graph_task* const task = first_;
        if (task != nullptr) first_ = task->next;
        return task;
    }
    /// False: it is not in the list.
    bool remove(const graph_task& task) noexcept {
        graph_task* before = nullptr;
        for (graph_task* each = first_; each != nullptr; before = each, each = each->next) {
            if (each != &task) continue;
            (before == nullptr ? first_ : before->next) = each->next;
            if (last_ == each) last_ = before;
            return true;
        }
        return false;
    }

private:
    graph_task* first_ = nullptr;
    graph_task* last_ = nullptr;
};

/// Which task waits for which.
///
/// Threads: one at a time.
class graph_order {
public:
    /// Lists the task behind those that it must wait for. If it throws std::bad_alloc, nothing has
    /// changed.
    void add(graph_task& task, std::span<const task_graph::use> uses);
    /// Forgets the task, and adds those that waited for nothing else to `ready`.
    void end(graph_task& task, ready_list& ready) noexcept;

private:
    void make_room(graph_task& task, std::span<const task_graph::use> uses);
    void drop_if_unused(graph_datum& datum) noexcept;

    // A node-based map: tasks keep pointers into it.
    std::unordered_map<const void*, graph_datum> data_;
    std::uint64_t last_number_ = 0;
};

}  // namespace amalgam::detail
