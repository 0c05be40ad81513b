#include <algorithm>

#include "callback.hpp"
#include "config.hpp"
#include "runtime.hpp"

using namespace amalgam::argobots;

namespace {

/// It is the program's now. Null: nothing.
ABT_thread popped(ABT_thread_opaque* who) noexcept {
    if (who != nullptr) who->state.store(popped_state, std::memory_order_release);
    return who;
}

int push_to(ABT_pool pool, ABT_thread_opaque& who, ABT_pool_context why) {
    return guarded([&] {
        if (!migrate_if_asked(who)) {
            associate(who, pool);
            pool->add(who, why);
        }
        return ABT_SUCCESS;
    });
}

template <typename Definition>
int create_user_pool(const Definition& functions, bool automatic, ABT_pool_config config,
                     ABT_pool* made) {
    auto pool = std::make_unique<user_pool>(functions, automatic);
    const int error = pool->init(config);
    if (error == ABT_SUCCESS) *made = pool.release();
    return error;
}

}  // namespace

int ABT_pool_create(ABT_pool_user_def def, ABT_pool_config config, ABT_pool* newpool) {
    *newpool = nullptr;
    if (!initialized()) return ABT_ERR_UNINITIALIZED;
    if (def == nullptr) return ABT_ERR_INV_POOL_USER_DEF;
    return guarded([=] {
        const bool automatic =
            config != nullptr && config->all.int_or(ABT_pool_config_automatic.key, 0) != 0;
        if (const pool_functions* const made = made_pool_functions(def))
            return create_user_pool(*made, automatic, config, newpool);
        if (def->p_push == nullptr || def->p_pop == nullptr || def->p_get_size == nullptr ||
            def->u_create_from_thread == nullptr || def->u_free == nullptr)
            return ABT_ERR_INV_POOL_USER_DEF;
        return create_user_pool(*def, automatic, config, newpool);
    });
}

int ABT_pool_create_basic(ABT_pool_kind kind, ABT_pool_access access, ABT_bool automatic,
                          ABT_pool* newpool) {
    *newpool = nullptr;
    if (!initialized()) return ABT_ERR_UNINITIALIZED;
    if (kind < ABT_POOL_FIFO || kind > ABT_POOL_RANDWS) return ABT_ERR_INV_POOL_KIND;
    if (access < ABT_POOL_ACCESS_PRIV || access > ABT_POOL_ACCESS_MPMC)
        return ABT_ERR_INV_POOL_ACCESS;
    return guarded([=] {
        *newpool = new own_pool(kind, access, automatic != ABT_FALSE);
        return ABT_SUCCESS;
    });
}

int ABT_pool_free(ABT_pool* pool) {
    if (*pool == nullptr) return ABT_ERR_INV_POOL;
    if ((*pool)->schedulers.load() != 0) return ABT_ERR_POOL;
    // A ULT that is moving into it calls this.
    if (between_ults::here() && (*pool)->holders.load() > 0) return ABT_ERR_POOL;
    delete *pool;
    *pool = nullptr;
    return ABT_SUCCESS;
}

int ABT_pool_get_access(ABT_pool pool, ABT_pool_access* access) {
    if (pool == nullptr) return ABT_ERR_INV_POOL;
    *access = pool->access_kind;
    return ABT_SUCCESS;
}

int ABT_pool_is_empty(ABT_pool pool, ABT_bool* is_empty) {
    if (pool == nullptr) return ABT_ERR_INV_POOL;
    *is_empty = pool->empty();
    return ABT_SUCCESS;
}

int ABT_pool_get_size(ABT_pool pool, size_t* size) {
    if (pool == nullptr) return ABT_ERR_INV_POOL;
    *size = pool->size();
    return ABT_SUCCESS;
}

int ABT_pool_get_total_size(ABT_pool pool, size_t* size) {
    if (pool == nullptr) return ABT_ERR_INV_POOL;
    *size = pool->total();
    return ABT_SUCCESS;
}

int ABT_pool_pop_thread(ABT_pool pool, ABT_thread* thread) {
    return ABT_pool_pop_thread_ex(pool, thread, ABT_POOL_CONTEXT_OP_POOL_OTHER);
}

int ABT_pool_pop_thread_ex(ABT_pool pool, ABT_thread* thread, ABT_pool_context pool_ctx) {
    *thread = nullptr;
    if (pool == nullptr) return ABT_ERR_INV_POOL;
    *thread = popped(pool->take(pool_ctx));
    return ABT_SUCCESS;
}

int ABT_pool_pop_threads(ABT_pool pool, ABT_thread* threads, size_t len, size_t* num) {
    return ABT_pool_pop_threads_ex(pool, threads, len, num, ABT_POOL_CONTEXT_OP_POOL_OTHER);
}

int ABT_pool_pop_threads_ex(ABT_pool pool, ABT_thread* threads, size_t len, size_t* num,
                            ABT_pool_context pool_ctx) {
    *num = 0;
    if (pool == nullptr) return ABT_ERR_INV_POOL;
    *num = pool->take_many(threads, len, pool_ctx);
    for (size_t i = 0; i < std::min(*num, len); ++i)
        popped(threads[i]);
    return ABT_SUCCESS;
}

int ABT_pool_push_thread(ABT_pool pool, ABT_thread thread) {
    return ABT_pool_push_thread_ex(pool, thread, ABT_POOL_CONTEXT_OP_POOL_OTHER);
}

int ABT_pool_push_thread_ex(ABT_pool pool, ABT_thread thread, ABT_pool_context pool_ctx) {
    if (pool == nullptr) return ABT_ERR_INV_POOL;
    return thread == nullptr ? ABT_SUCCESS : push_to(pool, *thread, pool_ctx);
}

int ABT_pool_push_threads(ABT_pool pool, const ABT_thread* threads, size_t num) {
    return ABT_pool_push_threads_ex(pool, threads, num, ABT_POOL_CONTEXT_OP_POOL_OTHER);
}

int ABT_pool_push_threads_ex(ABT_pool pool, const ABT_thread* threads, size_t num,
                             ABT_pool_context pool_ctx) {
    if (pool == nullptr) return ABT_ERR_INV_POOL;
    return guarded([=] {
        for (size_t i = 0; i < num; ++i) {
            if (threads[i] != nullptr) associate(*threads[i], pool);
        }
        pool->add_many(threads, num, pool_ctx);
        return ABT_SUCCESS;
    });
}

int ABT_pool_pop_wait_thread(ABT_pool pool, ABT_thread* thread, double time_secs) {
    return ABT_pool_pop_wait_thread_ex(pool, thread, time_secs, ABT_POOL_CONTEXT_OP_POOL_OTHER);
}

int ABT_pool_pop_wait_thread_ex(ABT_pool pool, ABT_thread* thread, double time_secs,
                                ABT_pool_context pool_ctx) {
    *thread = nullptr;
    if (pool == nullptr) return ABT_ERR_INV_POOL;
    *thread = popped(pool->take_wait(time_secs, pool_ctx));
    return ABT_SUCCESS;
}

int ABT_pool_print_all_threads(ABT_pool pool, void* arg, void (*print_fn)(void* arg, ABT_thread)) {
    if (pool == nullptr) return ABT_ERR_INV_POOL;
    const bool done = called_in_ult("an exception escaped from a function that prints",
                                    [=] { pool->print_threads(arg, print_fn); });
    return done ? ABT_SUCCESS : ABT_ERR_OTHER;
}

int ABT_pool_set_data(ABT_pool pool, void* data) {
    if (pool == nullptr) return ABT_ERR_INV_POOL;
    pool->data = data;
    return ABT_SUCCESS;
}

int ABT_pool_get_data(ABT_pool pool, void** data) {
    if (pool == nullptr) return ABT_ERR_INV_POOL;
    *data = pool->data;
    return ABT_SUCCESS;
}

int ABT_pool_add_sched(ABT_pool pool, ABT_sched sched) {
    if (pool == nullptr) return ABT_ERR_INV_POOL;
    if (sched == nullptr || sched->used()) return ABT_ERR_INV_SCHED;
    return guarded([=] {
        for (ABT_pool each : sched->pools)
            each->open();
        sched->in_pool = true;
        try {
            create_thread({.pool = pool,
                           .function = &run_sched,
                           .arg = sched,
                           .kind = thread_kind::scheduler,
                           .named = false});
        } catch (...) {
            sched->in_pool = false;
            throw;
        }
        return ABT_SUCCESS;
    });
}

int ABT_pool_get_id(ABT_pool pool, int* id) {
    if (pool == nullptr) return ABT_ERR_INV_POOL;
    *id = pool->id;
    return ABT_SUCCESS;
}

int ABT_pool_pop(ABT_pool pool, ABT_unit* unit) {
    ABT_thread who = nullptr;
    const int error = ABT_pool_pop_thread(pool, &who);
    *unit = who == nullptr ? nullptr : who->unit();
    return error;
}

int ABT_pool_pop_wait(ABT_pool pool, ABT_unit* unit, double time_secs) {
    ABT_thread who = nullptr;
    const int error = ABT_pool_pop_wait_thread(pool, &who, time_secs);
    *unit = who == nullptr ? nullptr : who->unit();
    return error;
}

int ABT_pool_pop_timedwait(ABT_pool pool, ABT_unit* unit, double abstime_secs) {
    return ABT_pool_pop_wait(pool, unit, abstime_secs - ABT_get_wtime());
}

int ABT_pool_remove(ABT_pool pool, ABT_unit unit) {
    if (pool == nullptr) return ABT_ERR_INV_POOL;
    ABT_thread_opaque* const who = thread_of(unit);
    if (who == nullptr) return ABT_ERR_INV_UNIT;
    if (!pool->remove_thread(*who)) return ABT_ERR_POOL;
    popped(who);
    return ABT_SUCCESS;
}

int ABT_pool_push(ABT_pool pool, ABT_unit unit) {
    if (pool == nullptr) return ABT_ERR_INV_POOL;
    ABT_thread_opaque* const who = thread_of(unit);
    if (who == nullptr) return ABT_ERR_INV_UNIT;
    return push_to(pool, *who, ABT_POOL_CONTEXT_OP_POOL_OTHER);
}

int ABT_pool_print_all(ABT_pool pool, void* arg, void (*print_fn)(void* arg, ABT_unit)) {
    if (pool == nullptr) return ABT_ERR_INV_POOL;
    const bool done = called_in_ult("an exception escaped from a function that prints",
                                    [=] { pool->print_units(arg, print_fn); });
    return done ? ABT_SUCCESS : ABT_ERR_OTHER;
}
