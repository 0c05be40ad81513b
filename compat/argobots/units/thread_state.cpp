#include <cstring>

#include "runtime.hpp"

// What a ULT is asked and told about itself by others.

using namespace amalgam::argobots;

namespace {

bool has_stack(const ABT_thread_opaque& who) noexcept {
    return !who.is_primary() && !who.is_tasklet();
}

/// Null: it has none, not yet or no more.
void* base_of_stack(const ABT_thread_opaque& who) noexcept {
    if (who.on_given_stack) return who.attr().stack;
    return who.work == nullptr ? nullptr : amalgam::detail::stack_of(who.work);
}

}  // namespace

int ABT_thread_get_last_xstream(ABT_thread thread, ABT_xstream* xstream) {
    *xstream = nullptr;
    if (thread == nullptr) return ABT_ERR_INV_THREAD;
    *xstream = thread->stream.load();
    return ABT_SUCCESS;
}

int ABT_thread_get_state(ABT_thread thread, ABT_thread_state* state) {
    if (thread == nullptr) return ABT_ERR_INV_THREAD;
    *state = told_state(thread->state.load(std::memory_order_acquire));
    return ABT_SUCCESS;
}

int ABT_thread_get_last_pool(ABT_thread thread, ABT_pool* pool) {
    if (thread == nullptr) return ABT_ERR_INV_THREAD;
    *pool = thread->pool.load();
    return ABT_SUCCESS;
}

int ABT_thread_get_last_pool_id(ABT_thread thread, int* id) {
    if (thread == nullptr) return ABT_ERR_INV_THREAD;
    return ABT_pool_get_id(thread->pool.load(), id);
}

int ABT_thread_get_unit(ABT_thread thread, ABT_unit* unit) {
    if (thread == nullptr) return ABT_ERR_INV_THREAD;
    *unit = thread->unit();
    return ABT_SUCCESS;
}

int ABT_thread_set_associated_pool(ABT_thread thread, ABT_pool pool) {
    if (thread == nullptr) return ABT_ERR_INV_THREAD;
    if (pool == nullptr) return ABT_ERR_INV_POOL;
    return guarded([=] {
        associate(*thread, pool);
        return ABT_SUCCESS;
    });
}

int ABT_thread_set_callback(ABT_thread thread, void (*cb_func)(ABT_thread thread, void* cb_arg),
                            void* cb_arg) {
    if (thread == nullptr) return ABT_ERR_INV_THREAD;
    return guarded([=] {
        ABT_thread_attr_opaque& attr = thread->rare_part().attr;
        attr.on_migration = cb_func;
        attr.on_migration_arg = cb_arg;
        return ABT_SUCCESS;
    });
}

int ABT_thread_set_migratable(ABT_thread thread, ABT_bool migratable) {
    if (thread == nullptr || thread->kind != thread_kind::ult) return ABT_ERR_INV_THREAD;
    return guarded([=] {
        thread->rare_part().attr.migratable = migratable != ABT_FALSE;
        return ABT_SUCCESS;
    });
}

int ABT_thread_is_migratable(ABT_thread thread, ABT_bool* is_migratable) {
    if (thread == nullptr) return ABT_ERR_INV_THREAD;
    *is_migratable = thread->attr().migratable && thread->kind == thread_kind::ult;
    return ABT_SUCCESS;
}

int ABT_thread_is_primary(ABT_thread thread, ABT_bool* is_primary) {
    if (thread == nullptr) return ABT_ERR_INV_THREAD;
    *is_primary = thread->is_primary();
    return ABT_SUCCESS;
}

int ABT_thread_is_unnamed(ABT_thread thread, ABT_bool* is_unnamed) {
    if (thread == nullptr) return ABT_ERR_INV_THREAD;
    *is_unnamed = !thread->named;
    return ABT_SUCCESS;
}

int ABT_thread_equal(ABT_thread thread1, ABT_thread thread2, ABT_bool* result) {
    *result = thread1 == thread2;
    return ABT_SUCCESS;
}

int ABT_thread_get_id(ABT_thread thread, ABT_unit_id* thread_id) {
    if (thread == nullptr) return ABT_ERR_INV_THREAD;
    *thread_id = id_of(*thread);
    return ABT_SUCCESS;
}

int ABT_thread_set_arg(ABT_thread thread, void* arg) {
    if (thread == nullptr) return ABT_ERR_INV_THREAD;
    thread->arg = arg;
    return ABT_SUCCESS;
}

int ABT_thread_get_arg(ABT_thread thread, void** arg) {
    if (thread == nullptr) return ABT_ERR_INV_THREAD;
    *arg = thread->arg;
    return ABT_SUCCESS;
}

int ABT_thread_get_thread_func(ABT_thread thread, void (**thread_func)(void*)) {
    if (thread == nullptr) return ABT_ERR_INV_THREAD;
    *thread_func = thread->function;
    return ABT_SUCCESS;
}

int ABT_thread_set_specific(ABT_thread thread, ABT_key key, void* value) {
    if (thread == nullptr) return ABT_ERR_INV_THREAD;
    return set_value(*thread, key, value);
}

int ABT_thread_get_specific(ABT_thread thread, ABT_key key, void** value) {
    if (thread == nullptr) return ABT_ERR_INV_THREAD;
    return get_value(*thread, key, value);
}

int ABT_thread_get_stacksize(ABT_thread thread, size_t* stacksize) {
    return ABT_thread_get_stack(thread, nullptr, stacksize);
}

int ABT_thread_get_stack(ABT_thread thread, void** stackaddr, size_t* stacksize) {
    if (thread == nullptr) return ABT_ERR_INV_THREAD;
    const bool has_one = has_stack(*thread);
    if (stackaddr != nullptr) *stackaddr = has_one ? base_of_stack(*thread) : nullptr;
    if (stacksize != nullptr) *stacksize = has_one ? stack_bytes_of(thread->attr()) : 0;
    return ABT_SUCCESS;
}

int ABT_thread_get_attr(ABT_thread thread, ABT_thread_attr* attr) {
    if (thread == nullptr) return ABT_ERR_INV_THREAD;
    return guarded([=] {
        *attr = new ABT_thread_attr_opaque(thread->attr());
        (*attr)->stack_bytes = stack_bytes_of(thread->attr());
        (*attr)->has_no_stack = !has_stack(*thread);
        (*attr)->told_stack = has_stack(*thread) ? base_of_stack(*thread) : nullptr;
        return ABT_SUCCESS;
    });
}
