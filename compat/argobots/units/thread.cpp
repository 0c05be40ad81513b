#include "callback.hpp"
#include "runtime.hpp"
#include "tool.hpp"

// Creating, joining, reviving and moving ULTs.

using namespace amalgam::argobots;

namespace {

// Apart, and tail-called: then the common path saves no registers.
[[gnu::noinline]] int create_slowly(ABT_pool pool, void (*function)(void*), void* arg,
                                    ABT_thread_attr attr, ABT_thread* made,
                                    ABT_xstream runs_next_on) {
    if (const int error = runtime::may_add(pool)) return error;
    return guarded([&] {
        create_thread({.pool = pool,
                       .function = function,
                       .arg = arg,
                       .attr = attr,
                       .named = made != nullptr,
                       .runs_next_on = runs_next_on,
                       .made = made});
        return ABT_SUCCESS;
    });
}

int create(ABT_pool pool, void (*function)(void*), void* arg, ABT_thread_attr attr,
           ABT_thread* made, ABT_xstream runs_next_on = nullptr) {
    if (made != nullptr) *made = nullptr;
    const bool usual = attr == nullptr && runs_next_on == nullptr && pool != nullptr &&
                       runtime::has_usual_stacks() && pool->own != nullptr;
    if (usual) [[likely]]
        return create_usual(*pool->own, function, arg, made, thread_kind::ult);
    return create_slowly(pool, function, arg, attr, made, runs_next_on);
}

int revive(ABT_pool pool, void (*function)(void*), void* arg, ABT_thread_opaque& who,
           ABT_xstream runs_next_on) {
    if (who.state.load() != ABT_THREAD_STATE_TERMINATED) return ABT_ERR_INV_THREAD;
    if (const int error = runtime::may_add(pool)) return error;
    return guarded([&] {
        join_last(who);
        tell_tool(who, ABT_TOOL_EVENT_THREAD_JOIN);
        associate(who, pool);
        who.function = function;
        who.arg = arg;
        who.canceled = false;
        who.leaves_as = ABT_POOL_CONTEXT_OP_THREAD_REVIVE;
        who.runs_next_on = runs_next_on;
        who.told = told_stage::unknown;
        tell_tool(who, ABT_TOOL_EVENT_THREAD_REVIVE);
        relaunch(who);
        return ABT_SUCCESS;
    });
}

/// The calling ULT, which may wait; null with an error number otherwise.
ABT_thread_opaque* waiting_self(int& error) {
    ABT_thread_opaque* const who = self();
    error = !initialized()      ? ABT_ERR_UNINITIALIZED
            : who == nullptr    ? ABT_ERR_INV_XSTREAM
            : who->is_tasklet() ? ABT_ERR_INV_THREAD
                                : ABT_SUCCESS;
    return error == ABT_SUCCESS ? who : nullptr;
}

int join(ABT_thread thread, const ABT_thread_opaque* me, bool to_free = false) {
    if (thread == nullptr || thread == me || thread->is_primary() || !thread->named ||
        thread->kind == thread_kind::scheduler || is_tasklet(me))
        return ABT_ERR_INV_THREAD;
    // Nothing of it may be in use when the program frees the stack that it gave.
    const bool over = !to_free && !thread->on_given_stack &&
                      thread->state.load(std::memory_order_acquire) == ABT_THREAD_STATE_TERMINATED;
    if (over && !has_tool()) return ABT_SUCCESS;
    if (may_not_wait(me)) return ABT_ERR_INV_THREAD;
    return guarded([=] {
        if (to_free) {
            join_last(*thread);
            tell_tool(*thread, ABT_TOOL_EVENT_THREAD_JOIN);
        } else {
            has_tool() ? join_and_tell(*thread) : join_thread(*thread);
        }
        return ABT_SUCCESS;
    });
}

/// It has ended, and there is neither a joiner to wait for nor a tool to tell.
bool is_over(ABT_thread_opaque& who) noexcept {
    return who.end_is_told() && who.others_joining.load(std::memory_order_acquire) == 0 &&
           !has_tool();
}

int migrate_to(ABT_thread thread, ABT_pool pool) {
    if (thread == nullptr) return ABT_ERR_INV_THREAD;
    if (pool == nullptr) return ABT_ERR_INV_POOL;
    if (!thread->attr().migratable || thread->kind != thread_kind::ult) return ABT_ERR_INV_THREAD;
    if (thread->state.load() == ABT_THREAD_STATE_TERMINATED) return ABT_ERR_INV_THREAD;
    if (thread->pool.load() == pool) return ABT_ERR_MIGRATION_TARGET;
    return guarded([=] {
        runtime::get()->note_goal(*pool);
        thread->migrates_to = pool->id;
        return ABT_SUCCESS;
    });
}

/// Null: the user's function gave none.
ABT_pool pool_for_migration(ABT_sched_opaque& sched) {
    if (sched.functions.get_migr_pool == nullptr) return sched.pools.front();
    ABT_pool chosen = nullptr;
    called_in_ult("an exception escaped from get_migr_pool() of a scheduler",
                  [&] { chosen = sched.functions.get_migr_pool(&sched); });
    return chosen;
}

int migrate_to_sched(ABT_thread thread, ABT_sched_opaque& sched) {
    if (thread == nullptr) return ABT_ERR_INV_THREAD;
    ABT_pool const pool = pool_for_migration(sched);
    return pool == nullptr ? ABT_ERR_MIGRATION_TARGET : migrate_to(thread, pool);
}

}  // namespace

int ABT_thread_create(ABT_pool pool, void (*thread_func)(void*), void* arg, ABT_thread_attr attr,
                      ABT_thread* newthread) {
    return create(pool, thread_func, arg, attr, newthread);
}

int ABT_thread_create_to(ABT_pool pool, void (*thread_func)(void*), void* arg, ABT_thread_attr attr,
                         ABT_thread* newthread) {
    int error;
    ABT_thread_opaque* const me = waiting_self(error);
    if (me == nullptr) return error;
    const int failed = create(pool, thread_func, arg, attr, newthread, me->stream.load());
    if (failed != ABT_SUCCESS) return failed;
    yield_as(*me, ABT_POOL_CONTEXT_OP_THREAD_CREATE_TO);
    return ABT_SUCCESS;
}

int ABT_thread_create_on_xstream(ABT_xstream xstream, void (*thread_func)(void*), void* arg,
                                 ABT_thread_attr attr, ABT_thread* newthread) {
    if (newthread != nullptr) *newthread = nullptr;
    if (xstream == nullptr) return ABT_ERR_INV_XSTREAM;
    return create(xstream->main_sched->pools.front(), thread_func, arg, attr, newthread);
}

int ABT_thread_create_many(int num_threads, ABT_pool* pool_list, void (**thread_func_list)(void*),
                           void** arg_list, ABT_thread_attr attr, ABT_thread* newthread_list) {
    if (num_threads < 0) return ABT_ERR_INV_ARG;
    if (attr != nullptr && attr->stack != nullptr) return ABT_ERR_INV_THREAD_ATTR;
    for (int i = 0; i < num_threads; ++i) {
        void* const arg = arg_list == nullptr ? nullptr : arg_list[i];
        ABT_thread* const made = newthread_list == nullptr ? nullptr : &newthread_list[i];
        const int error = create(pool_list[i], thread_func_list[i], arg, attr, made);
        if (error != ABT_SUCCESS) return error;
    }
    return ABT_SUCCESS;
}

int ABT_thread_revive(ABT_pool pool, void (*thread_func)(void*), void* arg, ABT_thread* thread) {
    if (thread == nullptr || *thread == nullptr) return ABT_ERR_INV_THREAD;
    if (pool == nullptr) return ABT_ERR_INV_POOL;
    return revive(pool, thread_func, arg, **thread, nullptr);
}

int ABT_thread_revive_to(ABT_pool pool, void (*thread_func)(void*), void* arg, ABT_thread* thread) {
    if (thread == nullptr || *thread == nullptr) return ABT_ERR_INV_THREAD;
    if (pool == nullptr) return ABT_ERR_INV_POOL;
    int error;
    ABT_thread_opaque* const me = waiting_self(error);
    if (me == nullptr) return error;
    const int failed = revive(pool, thread_func, arg, **thread, me->stream.load());
    if (failed != ABT_SUCCESS) return failed;
    yield_as(*me, ABT_POOL_CONTEXT_OP_THREAD_REVIVE_TO);
    return ABT_SUCCESS;
}

int ABT_thread_free(ABT_thread* thread) {
    if (*thread != nullptr && is_over(**thread)) [[likely]] {
        free_thread(**thread);
        *thread = nullptr;
        return ABT_SUCCESS;
    }
    if (!initialized()) return ABT_ERR_UNINITIALIZED;
    if (const int error = join(*thread, self(), true)) return error;
    free_thread(**thread);
    *thread = nullptr;
    return ABT_SUCCESS;
}

int ABT_thread_free_many(int num_threads, ABT_thread* thread_list) {
    for (int i = 0; i < num_threads; ++i) {
        if (const int error = ABT_thread_free(&thread_list[i])) return error;
    }
    return ABT_SUCCESS;
}

int ABT_thread_join(ABT_thread thread) {
    return initialized() ? join(thread, self()) : ABT_ERR_UNINITIALIZED;
}

int ABT_thread_join_many(int num_threads, ABT_thread* thread_list) {
    if (!initialized()) return ABT_ERR_UNINITIALIZED;
    const ABT_thread_opaque* const me = self();
    for (int i = 0; i < num_threads; ++i) {
        if (const int error = join(thread_list[i], me)) return error;
    }
    return ABT_SUCCESS;
}

int ABT_thread_cancel(ABT_thread thread) {
    if (thread == nullptr || thread->is_primary()) return ABT_ERR_INV_THREAD;
    thread->canceled.store(true, std::memory_order_release);
    return ABT_SUCCESS;
}

int ABT_thread_resume(ABT_thread thread) {
    if (thread == nullptr) return ABT_ERR_INV_THREAD;
    amalgam::waiter* const waits = thread->suspended.exchange(nullptr);
    if (waits == nullptr) return ABT_ERR_THREAD;
    thread->leaves_as = ABT_POOL_CONTEXT_OP_THREAD_RESUME;
    thread->state.store(resumed_state, std::memory_order_release);
    tell_tool(*thread, ABT_TOOL_EVENT_THREAD_RESUME);
    waits->unpark();
    return ABT_SUCCESS;
}

int ABT_thread_migrate_to_xstream(ABT_thread thread, ABT_xstream xstream) {
    if (xstream == nullptr) return ABT_ERR_INV_XSTREAM;
    if (xstream->state.load() == ABT_XSTREAM_STATE_TERMINATED) return ABT_ERR_INV_XSTREAM;
    return guarded([=] { return migrate_to_sched(thread, *runtime::get()->hold(*xstream).sched); });
}

int ABT_thread_migrate_to_sched(ABT_thread thread, ABT_sched sched) {
    if (sched == nullptr) return ABT_ERR_INV_SCHED;
    return migrate_to_sched(thread, *sched);
}

int ABT_thread_migrate_to_pool(ABT_thread thread, ABT_pool pool) {
    if (pool != nullptr) pool->open();  // though its stream has ended: the program has it still
    return migrate_to(thread, pool);
}

int ABT_thread_migrate(ABT_thread thread) {
    if (thread == nullptr) return ABT_ERR_INV_THREAD;
    return guarded([thread] {
        const std::vector<held_stream> streams = runtime::get()->hold_all();
        const std::size_t begin = id_of(*thread);  // so that not all go to one
        for (std::size_t i = 0; i < streams.size(); ++i) {
            const held_stream& to = streams[(begin + i) % streams.size()];
            if (to.stream.get() == thread->stream.load() || to.stream->ended()) continue;
            const int error = migrate_to_sched(thread, *to.sched);
            if (error != ABT_ERR_MIGRATION_TARGET) return error;
        }
        return ABT_ERR_MIGRATION_NA;
    });
}
