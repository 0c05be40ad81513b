#include <amalgam/tasks/parking.hpp>
#include <amalgam/tasks/ult.hpp>

#include "runtime.hpp"
#include "tool.hpp"

// The calling ULT: who it is, and how it leaves its stream to others.

using namespace amalgam::argobots;

namespace {

/// The caller. Null, with an error number: a plain thread.
ABT_thread_opaque* caller(int& error) noexcept {
    ABT_thread_opaque* const who = self();
    error = ABT_SUCCESS;
    if (who == nullptr) error = initialized() ? ABT_ERR_INV_XSTREAM : ABT_ERR_UNINITIALIZED;
    return who;
}

/// The same, but null for a tasklet, too.
ABT_thread_opaque* waiting_caller(int& error) noexcept {
    ABT_thread_opaque* const who = caller(error);
    if (who == nullptr || !who->is_tasklet()) return who;
    error = ABT_ERR_INV_THREAD;
    return nullptr;
}

// Whoever sees it blocked finds what to resume. Resumed before that, it never looks blocked.
void suspend(ABT_thread_opaque& me) {
    {
        amalgam::waiter until;
        until.waits_for("resume");
        tell_tool(me, ABT_TOOL_EVENT_THREAD_SUSPEND, {ABT_SYNC_EVENT_TYPE_USER});
        me.ends_quickly.store(false, std::memory_order_relaxed);
        me.suspended.store(&until, std::memory_order_release);
        std::uint8_t running = ABT_THREAD_STATE_RUNNING;
        me.state.compare_exchange_strong(running, ABT_THREAD_STATE_BLOCKED);
        until.park();
        // Resumed before it parked, it was made ready nowhere.
        if (me.runs_next_on.load(std::memory_order_relaxed) != nullptr) me.runs_next_on = nullptr;
        me.state.store(ABT_THREAD_STATE_RUNNING, std::memory_order_release);
        tell_tool_goes_on(me);
    }
    end_if_canceled(me);
}

ABT_xstream_opaque& stream_of(ABT_thread_opaque& who) noexcept {
    return *who.stream.load(std::memory_order_relaxed);
}

/// Whether `target`, which the program had, is the caller's from now on. Pools of the program's
/// functions do not tell what is in them.
bool claim(ABT_thread_opaque& target) noexcept {
    std::uint8_t seen = popped_state;
    if (target.state.compare_exchange_strong(seen, ABT_THREAD_STATE_READY)) return true;
    const ABT_pool_opaque* const home = target.pool.load(std::memory_order_relaxed);
    return seen == ABT_THREAD_STATE_READY && home != nullptr && home->own == nullptr;
}

/// Checks `target`, which must be ready and in no pool, and hands the stream over to it.
int hand_over(ABT_thread_opaque& me, ABT_thread target) noexcept {
    if (target == nullptr || target == &me || target->is_primary()) return ABT_ERR_INV_THREAD;
    if (!claim(*target)) return ABT_ERR_INV_THREAD;
    stream_of(me).hand_over_to(*target);
    return ABT_SUCCESS;
}

/// Resumes `target`, which runs when the caller leaves.
int resume_next(ABT_thread_opaque& me, ABT_thread target) {
    if (target == nullptr || target == &me) return ABT_ERR_INV_THREAD;
    target->runs_next_on = me.stream.load();
    const int error = ABT_thread_resume(target);
    if (error != ABT_SUCCESS) target->runs_next_on = nullptr;
    return error;
}

int exit_caller(ABT_thread_opaque& me) {
    if (me.is_primary()) return ABT_ERR_INV_THREAD;
    amalgam::this_task::exit();
}

}  // namespace

int ABT_self_get_xstream(ABT_xstream* xstream) {
    int error;
    const ABT_thread_opaque* const me = caller(error);
    if (me == nullptr) return error;
    *xstream = me->stream.load();
    return ABT_SUCCESS;
}

int ABT_self_get_xstream_rank(int* rank) {
    int error;
    ABT_thread_opaque* const me = caller(error);
    if (me == nullptr) return error;
    *rank = stream_of(*me).rank.load();
    return ABT_SUCCESS;
}

int ABT_self_get_thread(ABT_thread* thread) {
    int error;
    *thread = nullptr;
    ABT_thread_opaque* const me = caller(error);
    if (me == nullptr) return error;
    *thread = me;
    return ABT_SUCCESS;
}

int ABT_self_get_thread_id(ABT_unit_id* id) {
    int error;
    ABT_thread_opaque* const me = caller(error);
    if (me == nullptr) return error;
    *id = id_of(*me);
    return ABT_SUCCESS;
}

int ABT_thread_self(ABT_thread* thread) {
    int error;
    *thread = nullptr;
    ABT_thread_opaque* const me = waiting_caller(error);
    if (me == nullptr) return error;
    *thread = me;
    return ABT_SUCCESS;
}

int ABT_thread_self_id(ABT_unit_id* id) {
    int error;
    ABT_thread_opaque* const me = waiting_caller(error);
    if (me == nullptr) return error;
    *id = id_of(*me);
    return ABT_SUCCESS;
}

int ABT_self_set_specific(ABT_key key, void* value) {
    int error;
    ABT_thread_opaque* const me = caller(error);
    return me == nullptr ? error : set_value(*me, key, value);
}

int ABT_self_get_specific(ABT_key key, void** value) {
    int error;
    ABT_thread_opaque* const me = caller(error);
    return me == nullptr ? error : get_value(*me, key, value);
}

int ABT_self_get_type(ABT_unit_type* type) {
    int error;
    *type = ABT_UNIT_TYPE_EXT;
    const ABT_thread_opaque* const me = caller(error);
    if (me == nullptr) return error;
    *type = me->is_tasklet() ? ABT_UNIT_TYPE_TASK : ABT_UNIT_TYPE_THREAD;
    return ABT_SUCCESS;
}

int ABT_self_is_primary(ABT_bool* is_primary) {
    int error;
    *is_primary = ABT_FALSE;
    const ABT_thread_opaque* const me = waiting_caller(error);
    if (me == nullptr) return error;
    *is_primary = me->is_primary();
    return ABT_SUCCESS;
}

int ABT_self_on_primary_xstream(ABT_bool* on_primary) {
    int error;
    *on_primary = ABT_FALSE;
    ABT_thread_opaque* const me = caller(error);
    if (me == nullptr) return error;
    *on_primary = stream_of(*me).primary;
    return ABT_SUCCESS;
}

int ABT_self_is_unnamed(ABT_bool* is_unnamed) {
    int error;
    *is_unnamed = ABT_FALSE;
    const ABT_thread_opaque* const me = caller(error);
    if (me == nullptr) return error;
    *is_unnamed = !me->named;
    return ABT_SUCCESS;
}

int ABT_self_get_last_pool(ABT_pool* pool) {
    int error;
    *pool = nullptr;
    const ABT_thread_opaque* const me = caller(error);
    if (me == nullptr) return error;
    *pool = me->pool.load();
    return ABT_SUCCESS;
}

int ABT_self_get_last_pool_id(int* pool_id) {
    ABT_pool pool;
    if (const int error = ABT_self_get_last_pool(&pool)) return error;
    return ABT_pool_get_id(pool, pool_id);
}

int ABT_self_set_associated_pool(ABT_pool pool) {
    int error;
    ABT_thread_opaque* const me = caller(error);
    return me == nullptr ? error : ABT_thread_set_associated_pool(me, pool);
}

int ABT_self_get_unit(ABT_unit* unit) {
    int error;
    *unit = nullptr;
    const ABT_thread_opaque* const me = caller(error);
    if (me == nullptr) return error;
    *unit = me->unit();
    return ABT_SUCCESS;
}

int ABT_self_set_arg(void* arg) {
    int error;
    ABT_thread_opaque* const me = caller(error);
    return me == nullptr ? error : ABT_thread_set_arg(me, arg);
}

int ABT_self_get_arg(void** arg) {
    int error;
    ABT_thread_opaque* const me = caller(error);
    return me == nullptr ? error : ABT_thread_get_arg(me, arg);
}

int ABT_self_get_thread_func(void (**thread_func)(void*)) {
    int error;
    ABT_thread_opaque* const me = caller(error);
    return me == nullptr ? error : ABT_thread_get_thread_func(me, thread_func);
}

int ABT_self_yield(void) {
    int error;
    ABT_thread_opaque* const me = waiting_caller(error);
    if (me == nullptr) return error;
    yield_as(*me, ABT_POOL_CONTEXT_OP_THREAD_YIELD);
    return ABT_SUCCESS;
}

int ABT_thread_yield(void) {
    ABT_thread_opaque* const me = self();
    if (me == nullptr || me->is_tasklet()) return ABT_SUCCESS;
    yield_as(*me, ABT_POOL_CONTEXT_OP_THREAD_YIELD);
    return ABT_SUCCESS;
}

int ABT_self_yield_to(ABT_thread thread) {
    int error;
    ABT_thread_opaque* const me = waiting_caller(error);
    if (me == nullptr) return error;
    if ((error = hand_over(*me, thread)) != ABT_SUCCESS) return error;
    yield_as(*me, ABT_POOL_CONTEXT_OP_THREAD_YIELD_TO);
    return ABT_SUCCESS;
}

int ABT_thread_yield_to(ABT_thread thread) {
    int error;
    ABT_thread_opaque* const me = waiting_caller(error);
    if (me == nullptr) return error;
    if (thread == nullptr) return ABT_ERR_INV_THREAD;
    if (thread == me) return ABT_SUCCESS;
    if (thread->state.load() == ABT_THREAD_STATE_TERMINATED) return ABT_ERR_INV_THREAD;
    ABT_pool const home = thread->pool.load();
    if (home == nullptr || thread->is_primary() || !home->remove_thread(*thread))
        return ABT_self_yield();
    if (thread->state.load() != ABT_THREAD_STATE_READY) return ABT_ERR_INV_THREAD;
    stream_of(*me).hand_over_to(*thread);
    yield_as(*me, ABT_POOL_CONTEXT_OP_THREAD_YIELD_TO);
    return ABT_SUCCESS;
}

int ABT_self_resume_yield_to(ABT_thread thread) {
    int error;
    ABT_thread_opaque* const me = waiting_caller(error);
    if (me == nullptr) return error;
    if ((error = resume_next(*me, thread)) != ABT_SUCCESS) return error;
    yield_as(*me, ABT_POOL_CONTEXT_OP_THREAD_RESUME_YIELD_TO);
    return ABT_SUCCESS;
}

int ABT_self_suspend(void) {
    int error;
    ABT_thread_opaque* const me = waiting_caller(error);
    if (me == nullptr) return error;
    suspend(*me);
    return ABT_SUCCESS;
}

int ABT_self_suspend_to(ABT_thread thread) {
    int error;
    ABT_thread_opaque* const me = waiting_caller(error);
    if (me == nullptr) return error;
    if ((error = hand_over(*me, thread)) != ABT_SUCCESS) return error;
    suspend(*me);
    return ABT_SUCCESS;
}

int ABT_self_resume_suspend_to(ABT_thread thread) {
    int error;
    ABT_thread_opaque* const me = waiting_caller(error);
    if (me == nullptr) return error;
    if ((error = resume_next(*me, thread)) != ABT_SUCCESS) return error;
    suspend(*me);
    return ABT_SUCCESS;
}

int ABT_self_exit(void) {
    int error;
    ABT_thread_opaque* const me = waiting_caller(error);
    return me == nullptr ? error : exit_caller(*me);
}

int ABT_thread_exit(void) {
    return ABT_self_exit();
}

int ABT_self_exit_to(ABT_thread thread) {
    int error;
    ABT_thread_opaque* const me = waiting_caller(error);
    if (me == nullptr) return error;
    if (me->is_primary()) return ABT_ERR_INV_THREAD;
    if ((error = hand_over(*me, thread)) != ABT_SUCCESS) return error;
    return exit_caller(*me);
}

int ABT_self_resume_exit_to(ABT_thread thread) {
    int error;
    ABT_thread_opaque* const me = waiting_caller(error);
    if (me == nullptr) return error;
    if (me->is_primary()) return ABT_ERR_INV_THREAD;
    if ((error = resume_next(*me, thread)) != ABT_SUCCESS) return error;
    return exit_caller(*me);
}

int ABT_self_schedule(ABT_thread thread, ABT_pool pool) {
    int error;
    ABT_thread_opaque* const me = waiting_caller(error);
    if (me == nullptr) return error;
    if (thread == nullptr || thread == me) return ABT_ERR_INV_THREAD;
    return guarded([=] {
        if (pool != nullptr) associate(*thread, pool);
        if (migrate_if_asked(*thread)) return ABT_SUCCESS;
        ABT_xstream_opaque& here = stream_of(*me);
        // The primary ULT is in a pool that its stream looks at first anyway.
        if (!me->is_primary()) {
            here.ordinary = false;
            here.calling.push_back(me);
            me->calling = true;
        }
        here.hand_over_to(*thread);
        leave_stream(*me);
        end_if_canceled(*me);
        return ABT_SUCCESS;
    });
}
