#include "runtime.hpp"
#include "tool.hpp"

using namespace amalgam::argobots;

// Apart, and tail-called: then the common path saves no registers.
[[gnu::noinline]] static int create_task_slowly(ABT_pool pool, void (*function)(void*), void* arg,
                                                ABT_task* made) {
    if (const int error = runtime::may_add(pool)) return error;
    return guarded([&] {
        create_thread({.pool = pool,
                       .function = function,
                       .arg = arg,
                       .kind = thread_kind::tasklet,
                       .named = made != nullptr,
                       .made = made});
        return ABT_SUCCESS;
    });
}

int ABT_task_create(ABT_pool pool, void (*task_func)(void*), void* arg, ABT_task* newtask) {
    if (newtask != nullptr) *newtask = nullptr;
    if (pool != nullptr && runtime::has_streams() && pool->own != nullptr) [[likely]]
        return create_usual(*pool->own, task_func, arg, newtask, thread_kind::tasklet);
    return create_task_slowly(pool, task_func, arg, newtask);
}

int ABT_task_create_on_xstream(ABT_xstream xstream, void (*task_func)(void*), void* arg,
                               ABT_task* newtask) {
    if (newtask != nullptr) *newtask = nullptr;
    if (xstream == nullptr) return ABT_ERR_INV_XSTREAM;
    return ABT_task_create(xstream->main_sched->pools.front(), task_func, arg, newtask);
}

int ABT_task_revive(ABT_pool pool, void (*task_func)(void*), void* arg, ABT_task* task) {
    return ABT_thread_revive(pool, task_func, arg, task);
}

int ABT_task_free(ABT_task* task) {
    return ABT_thread_free(task);
}

int ABT_task_join(ABT_task task) {
    return ABT_thread_join(task);
}

int ABT_task_cancel(ABT_task task) {
    return ABT_thread_cancel(task);
}

int ABT_task_self(ABT_task* task) {
    *task = nullptr;
    if (!initialized()) return ABT_ERR_UNINITIALIZED;
    ABT_thread_opaque* const who = self();
    if (who == nullptr) return ABT_ERR_INV_XSTREAM;
    if (!who->is_tasklet()) return ABT_ERR_INV_TASK;
    *task = who;
    return ABT_SUCCESS;
}

int ABT_task_self_id(uint64_t* id) {
    ABT_task task;
    const int error = ABT_task_self(&task);
    if (error == ABT_SUCCESS) *id = id_of(*task);
    return error;
}

int ABT_task_get_xstream(ABT_task task, ABT_xstream* xstream) {
    return ABT_thread_get_last_xstream(task, xstream);
}

int ABT_task_get_state(ABT_task task, ABT_task_state* state) {
    ABT_thread_state as_thread;
    if (const int error = ABT_thread_get_state(task, &as_thread)) return error;
    *state = as_thread == ABT_THREAD_STATE_READY        ? ABT_TASK_STATE_READY
             : as_thread == ABT_THREAD_STATE_TERMINATED ? ABT_TASK_STATE_TERMINATED
                                                        : ABT_TASK_STATE_RUNNING;
    return ABT_SUCCESS;
}

int ABT_task_get_last_pool(ABT_task task, ABT_pool* pool) {
    return ABT_thread_get_last_pool(task, pool);
}

int ABT_task_get_last_pool_id(ABT_task task, int* id) {
    return ABT_thread_get_last_pool_id(task, id);
}

int ABT_task_set_migratable(ABT_task task, ABT_bool flag) {
    if (task == nullptr) return ABT_ERR_INV_TASK;
    return guarded([=] {
        task->rare_part().attr.migratable = flag != ABT_FALSE;
        return ABT_SUCCESS;
    });
}

int ABT_task_is_migratable(ABT_task task, ABT_bool* flag) {
    if (task == nullptr) return ABT_ERR_INV_TASK;
    *flag = task->attr().migratable;
    return ABT_SUCCESS;
}

int ABT_task_equal(ABT_task task1, ABT_task task2, ABT_bool* result) {
    *result = task1 == task2;
    return ABT_SUCCESS;
}

int ABT_task_get_id(ABT_task task, uint64_t* task_id) {
    return ABT_thread_get_id(task, task_id);
}

int ABT_task_get_arg(ABT_task task, void** arg) {
    return ABT_thread_get_arg(task, arg);
}
