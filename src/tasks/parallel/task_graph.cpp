#include <algorithm>
#include <exception>
#include <mutex>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/condition_variable.hpp>
#include <amalgam/tasks/detail/posted_tasks.hpp>
#include <amalgam/tasks/mutex.hpp>
#include <amalgam/tasks/semaphore.hpp>
#include <amalgam/tasks/task_graph.hpp>
#include <amalgam/tasks/ult.hpp>

#include "tasks/dispatch/dispatcher.hpp"
#include "tasks/dispatch/ult_core.hpp"
#include "tasks/parallel/graph_order.hpp"

namespace amalgam {

namespace detail {

prepared_graph_task prepare_graph_task(std::size_t bytes, std::size_t align,
                                       void (*run)(void* body),
                                       void (*destroy)(void* body) noexcept) {
    align = std::max(align, alignof(graph_task));
    const std::size_t offset = (sizeof(graph_task) + align - 1) / align * align;
    void* const memory = ::operator new(offset + bytes, std::align_val_t{align});
    void* const body = static_cast<std::byte*>(memory) + offset;
    return {::new (memory) graph_task{.run = run, .destroy = destroy, .body = body, .align = align},
            body};
}

void drop_graph_task(graph_task& task) noexcept {
    const std::align_val_t align{task.align};
    task.~graph_task();
    ::operator delete(&task, align);
}

/// The lock guards all but the streams and the room.
class graph_core {
public:
    graph_core(const parallel_streams& on, std::size_t most_tasks)
        : where_(on), room_(most_tasks) {}

    void add(std::span<const task_graph::use> uses, graph_task& task);
    void wait();
    void wait_at_end() noexcept;
    void cancel() noexcept { failed_.store(true, std::memory_order_relaxed); }
    std::size_t size() const noexcept { return open_.load(std::memory_order_relaxed); }

private:
    /// A ULT that runs tasks, while it does. On its own stack.
    struct runner {
        const ult_core* ult;
        ready_list ready = {};
        runner* next = nullptr;
        runner** link = nullptr;
    };
    void post_task(graph_task& task);
    void run_from(graph_task& first) noexcept;
    void run_one(graph_task& task) noexcept;
    void end(graph_task& task, runner& me) noexcept;
    void take_back(graph_task& task) noexcept;
    bool is_in_own_task() noexcept;
    void fail(std::exception_ptr failure) noexcept;

    const parallel_streams where_;
    semaphore room_;
    mutex lock_;
    condition_variable idle_;
    graph_order order_;
    std::atomic<std::size_t> open_{0};  // read without the lock
    runner* runners_ = nullptr;
    std::exception_ptr failure_;
    std::atomic<bool> failed_{false};  // or canceled: then there is no failure
};

// Asked only where the caller would have to wait, so that tasks need no marks of their own.
bool graph_core::is_in_own_task() noexcept {
    const dispatcher* const here = dispatcher::current();
    const ult_core* const self = here == nullptr ? nullptr : here->running();
    if (self == nullptr) return false;
    const std::lock_guard hold(lock_);
    const runner* each = runners_;
    while (each != nullptr && each->ult != self)
        each = each->next;
    return each != nullptr;
}

void graph_core::add(std::span<const task_graph::use> uses, graph_task& task) {
    struct owned {
        graph_task* task;
        ~owned() {
            if (task == nullptr) return;
            task->destroy(task->body);
            drop_graph_task(*task);
        }
    } mine{&task};
    struct room {
        semaphore* of;
        ~room() {
            if (of != nullptr) of->release();
        }
    } taken{nullptr};
    const waiter may_wait;  // throws where the caller may not
    if (room_.try_acquire()) {
        taken.of = &room_;
    } else if (!is_in_own_task()) {
        room_.acquire();
        taken.of = &room_;
    }
    bool ready = false;
    {
        const std::lock_guard hold(lock_);
        order_.add(task, uses);
        ++open_;
        task.has_room = taken.of != nullptr;
        ready = task.waits_for == 0;
        // Held by its own end from now on, which may come at once.
        taken.of = nullptr;
        mine.task = nullptr;
    }
    if (!ready) return;
    try {
        post_task(task);
    } catch (...) {
        take_back(task);
        throw;
    }
}

void graph_core::post_task(graph_task& task) {
    post(where_.nearest_pool(), [this, &task]() noexcept { run_from(task); });
}

/// It could not be posted. Others may wait for it by now: they run as if it had.
void graph_core::take_back(graph_task& task) noexcept {
    task.destroy(task.body);
    runner nobody{nullptr};
    end(task, nobody);
    while (graph_task* const next = nobody.ready.pop()) {
        try {
            post_task(*next);
        } catch (...) {
            fail(std::current_exception());
            take_back(*next);
        }
    }
}

void graph_core::run_from(graph_task& first) noexcept {
    runner me{dispatcher::current()->running()};
    {
        const std::lock_guard hold(lock_);
        me.next = runners_;
        me.link = &runners_;
        if (me.next != nullptr) me.next->link = &me.next;
        runners_ = &me;
    }
    for (graph_task* task = &first; task != nullptr;) {
        run_one(*task);
        end(*task, me);
        // Goes on with the first of those that waited. The graph lives while there is one.
        task = me.ready.pop();
        ready_list kept;
        while (graph_task* const other = me.ready.pop()) {
            try {
                post_task(*other);
            } catch (...) {
                kept.push(*other);  // it runs here, later
            }
        }
        me.ready = kept;
    }
}

void graph_core::run_one(graph_task& task) noexcept {
    if (!failed_.load(std::memory_order_relaxed)) {
        try {
            task.run(task.body);
        } catch (...) {
            fail(exception_to_pass_on());
        }
    }
    task.destroy(task.body);
}

/// If nothing is left for `me`, the graph may be gone on return.
void graph_core::end(graph_task& task, runner& me) noexcept {
    {
        const std::lock_guard hold(lock_);
        order_.end(task, me.ready);
        if (me.ready.empty() && me.link != nullptr) {
            *me.link = me.next;
            if (me.next != nullptr) me.next->link = me.link;
        }
        if (--open_ == 0) idle_.notify_all();
        if (task.has_room) room_.release();
    }
    drop_graph_task(task);
}

void graph_core::fail(std::exception_ptr failure) noexcept {
    const std::lock_guard hold(lock_);
    if (!failed_.exchange(true, std::memory_order_relaxed)) failure_ = std::move(failure);
}

void graph_core::wait() {
    if (is_in_own_task()) {
        throw error(errc::invalid,
                    "a task cannot wait for all tasks of its own graph, as it is one of them: wait "
                    "outside of it, or name what it needs in add()");
    }
    std::unique_lock hold(lock_);
    idle_.wait(hold, [this] { return open_ == 0; });
    if (!failed_.exchange(false, std::memory_order_relaxed)) return;
    const std::exception_ptr failure = std::exchange(failure_, nullptr);
    hold.unlock();
    if (failure) std::rethrow_exception(failure);
    throw error(errc::canceled, "this task_graph was canceled, and may have left out tasks");
}

void graph_core::wait_at_end() noexcept {
    const cancel_later not_now;
    try {
        wait();
    } catch (...) {
        log_thrown("an exception of a task_graph was seen by nobody");
    }
}

}  // namespace detail

task_graph::task_graph(const parallel_streams& on, const task_graph_options& options) {
    if (options.most_tasks == 0) {
        throw error(errc::invalid,
                    "a task_graph of 0 tasks, expected how many may wait or run at once; example: "
                    "{.most_tasks = 2048}");
    }
    core_ = std::make_unique<detail::graph_core>(on, options.most_tasks);
}

task_graph::~task_graph() {
    core_->wait_at_end();
}

void task_graph::add(std::span<const use> uses, detail::graph_task& task) {
    core_->add(uses, task);
}

void task_graph::wait() {
    core_->wait();
}

void task_graph::cancel() noexcept {
    core_->cancel();
}

std::size_t task_graph::size() const noexcept {
    return core_->size();
}

}  // namespace amalgam
