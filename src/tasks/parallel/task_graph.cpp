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
    void* const memory = ::operator new (offset + bytes, std::align_val_t{align});
    void* const body = static_cast<std::byte*>(memory) + offset;
    return {::new (memory) graph_task{.run = run, .destroy = destroy, .body = body, .align = align},
            body};
}

void drop_graph_task(graph_task& task) noexcept {
    const std::align_val_t align{task.align};
    task.~graph_task();
    ::operator delete(&task, align);
}

/// Tasks that are ready wait in a list; runners, which are ULTs, take them from there. Whenever the
/// list is not empty, a runner is posted that has not begun: so a stream that becomes free finds
/// one, also when all other runners wait in their tasks. The lock guards all but the streams and
/// the room.
class task_graph_core {
public:
    task_graph_core(const parallel_streams& on, const task_graph_options& options)
        : where_(on), stack_bytes_(options.stack_bytes), room_(options.most_tasks) {}

    void add(std::span<const task_graph::use> uses, graph_task& task);
    void wait();
    void wait_at_end() noexcept;
    void cancel() noexcept { failed_.store(true, std::memory_order_relaxed); }
    std::size_t size() const noexcept { return open_.load(std::memory_order_relaxed); }

private:
    /// On the stack of its ULT.
    struct runner {
        const ult_core* ult;
        runner* next = nullptr;
        runner** link = nullptr;
    };
    /// What a runner's ULT runs. Destroyed before that, it is lost with its pool.
    struct start_of_runner {
        explicit start_of_runner(task_graph_core& graph) noexcept : of(&graph) {}
        start_of_runner(start_of_runner&& other) noexcept : of(std::exchange(other.of, nullptr)) {}
        start_of_runner& operator=(start_of_runner&&) = delete;
        ~start_of_runner() {
            if (of != nullptr) of->lose_runner();
        }
        void operator()() noexcept { std::exchange(of, nullptr)->run_tasks(); }

        task_graph_core* of;
    };
    bool is_in_own_task() noexcept;
    void post_runner();
    void try_post_runner() noexcept;
    void lose_runner() noexcept;
    void run_tasks() noexcept;
    void run_one(graph_task& task) noexcept;
    void wait_for_all(std::unique_lock<mutex>& hold);

    // The following need the lock.
    void fail(std::exception_ptr failure) noexcept;
    void leave_out_ready(std::unique_lock<mutex>& hold, const std::exception_ptr& why) noexcept;
    bool claim_post() noexcept;
    void enlist(runner& me) noexcept;
    graph_task* take(runner& me) noexcept;
    void end(graph_task& task) noexcept;

    const parallel_streams where_;
    const std::size_t stack_bytes_;
    semaphore room_;
    mutex lock_;
    condition_variable changed_;
    graph_order order_;
    ready_list ready_;
    std::size_t posted_ = 0;  // runners that have not begun
    runner* runners_ = nullptr;
    std::atomic<std::size_t> open_{0};  // read without the lock
    std::exception_ptr failure_;
    std::atomic<bool> failed_{false};  // or canceled: then there is no failure
};

// Asked only where the caller would have to wait, so that tasks need no marks of their own.
bool task_graph_core::is_in_own_task() noexcept {
    const dispatcher* const here = dispatcher::current();
    const ult_core* const self = here == nullptr ? nullptr : here->running();
    if (self == nullptr) return false;
    const std::lock_guard hold(lock_);
    const runner* each = runners_;
    while (each != nullptr && each->ult != self)
        each = each->next;
    return each != nullptr;
}

void task_graph_core::add(std::span<const task_graph::use> uses, graph_task& task) {
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
    std::unique_lock hold(lock_);
    order_.add(task, uses);
    open_.fetch_add(1, std::memory_order_relaxed);
    task.has_room = std::exchange(taken.of, nullptr) != nullptr;
    mine.task = nullptr;
    if (task.waits_for != 0) return;
    ready_.push(task);
    if (!claim_post()) return;
    hold.unlock();
    try {
        post_runner();
    } catch (...) {
        hold.lock();
        --posted_;
        const bool never_runs = ready_.remove(task);  // else others run it all the same
        if (never_runs) {
            mine.task = &task;
            end(task);
        }
        // Those who added tasks meanwhile have counted on this runner.
        leave_out_ready(hold, std::current_exception());
        hold.unlock();
        if (never_runs) throw;
    }
}

/// If nobody is there who could run what is ready.
void task_graph_core::leave_out_ready(std::unique_lock<mutex>& hold,
                                      const std::exception_ptr& why) noexcept {
    while (runners_ == nullptr && posted_ == 0) {
        graph_task* const task = ready_.pop();
        if (task == nullptr) return;
        fail(why);
        hold.unlock();
        task->destroy(task->body);
        hold.lock();
        end(*task);
        drop_graph_task(*task);
    }
}

bool task_graph_core::claim_post() noexcept {
    if (ready_.empty() || posted_ != 0) return false;
    ++posted_;
    return true;
}

void task_graph_core::post_runner() {
    start_of_runner begun(*this);
    try {
        post(where_.nearest_pool(), std::move(begun), {.stack_bytes = stack_bytes_});
    } catch (...) {
        begun.of = nullptr;
        throw;
    }
}

void task_graph_core::try_post_runner() noexcept {
    try {
        post_runner();
    } catch (...) {
        // The caller is a runner, and takes the tasks itself.
        const std::lock_guard hold(lock_);
        --posted_;
    }
}

/// Its pool was destroyed before it began.
void task_graph_core::lose_runner() noexcept {
    std::unique_lock hold(lock_);
    --posted_;
    leave_out_ready(hold, left_in_pool());
    changed_.notify_all();
}

void task_graph_core::run_tasks() noexcept {
    runner me{dispatcher::current()->running()};
    std::unique_lock hold(lock_);
    --posted_;
    enlist(me);
    while (graph_task* const task = take(me)) {
        const bool claimed = claim_post();
        hold.unlock();
        if (claimed) try_post_runner();
        run_one(*task);
        hold.lock();
        end(*task);
        drop_graph_task(*task);
    }
}

// Not inlined: GCC 12 would warn that the list outlives the runner.
[[gnu::noinline]] void task_graph_core::enlist(runner& me) noexcept {
    me.next = runners_;
    me.link = &runners_;
    if (me.next != nullptr) me.next->link = &me.next;
    runners_ = &me;
}

/// Null: nothing is left for `me`, and once it has unlocked, the graph may be gone.
graph_task* task_graph_core::take(runner& me) noexcept {
    if (graph_task* const task = ready_.pop()) return task;
    *me.link = me.next;
    if (me.next != nullptr) me.next->link = me.link;
    if (runners_ == nullptr) changed_.notify_all();
    return nullptr;
}

void task_graph_core::run_one(graph_task& task) noexcept {
    if (!failed_.load(std::memory_order_relaxed)) {
        try {
            task.run(task.body);
        } catch (...) {
            const std::exception_ptr failure = exception_to_pass_on();
            const std::lock_guard hold(lock_);
            fail(failure);
        }
    }
    task.destroy(task.body);
}

void task_graph_core::end(graph_task& task) noexcept {
    order_.end(task, ready_);
    if (task.has_room) room_.release();
    if (open_.fetch_sub(1, std::memory_order_relaxed) == 1) changed_.notify_all();
}

void task_graph_core::fail(std::exception_ptr failure) noexcept {
    if (!failed_.exchange(true, std::memory_order_relaxed)) failure_ = std::move(failure);
}

void task_graph_core::wait_for_all(std::unique_lock<mutex>& hold) {
    if (is_in_own_task()) {
        throw error(errc::invalid,
                    "a task cannot wait for all tasks of its own graph, as it is one of them: wait "
                    "outside of it, or name what it needs in add()");
    }
    hold.lock();
    changed_.wait(hold, [this] { return open_ == 0; });
}

void task_graph_core::wait() {
    std::unique_lock hold(lock_, std::defer_lock);
    wait_for_all(hold);
    if (!failed_.exchange(false, std::memory_order_relaxed)) return;
    const std::exception_ptr failure = std::exchange(failure_, nullptr);
    hold.unlock();
    if (failure) std::rethrow_exception(failure);
    throw error(errc::canceled, "this task_graph was canceled, and may have left out tasks");
}

void task_graph_core::wait_at_end() noexcept {
    const cancel_later not_now;
    std::unique_lock hold(lock_, std::defer_lock);
    try {
        wait_for_all(hold);
        if (failure_) std::rethrow_exception(failure_);
    } catch (...) {
        log_thrown("an exception of a task_graph was seen by nobody");
    }
    if (!hold.owns_lock()) hold.lock();
    changed_.wait(hold, [this] { return posted_ == 0 && runners_ == nullptr; });
}

}  // namespace detail

task_graph::task_graph(const parallel_streams& on, const task_graph_options& options) {
    if (options.most_tasks == 0) {
        throw error(errc::invalid,
                    "a task_graph of 0 tasks, expected how many may wait or run at once; example: "
                    "{.most_tasks = 2048}");
    }
    core_ = std::make_unique<detail::task_graph_core>(on, options);
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
