#include <thread>

#include "runtime.hpp"

using namespace amalgam::argobots;

namespace {

template <typename T>
int answer(void* to, T value) noexcept {
    *static_cast<T*>(to) = value;
    return ABT_SUCCESS;
}

const char* name_of_state(int state) noexcept {
    constexpr const char* names[] = {"ready", "running", "blocked", "terminated"};
    return names[state];
}

const char* name_of_kind(thread_kind kind) noexcept {
    constexpr const char* names[] = {"primary ULT", "scheduler", "ULT", "tasklet"};
    return names[static_cast<int>(kind)];
}

void print_stream(FILE* to, const held_stream& which) {
    std::fprintf(to, "stream %d (%s): %s\n", which.stream->rank.load(),
                 which.stream->primary ? "primary" : "secondary",
                 which.stream->ended() ? "terminated" : "running");
    ABT_info_print_sched(to, which.sched.get());
}

}  // namespace

int ABT_info_query_config(ABT_info_query_kind query_kind, void* val) {
    if (!initialized()) return ABT_ERR_UNINITIALIZED;
    switch (query_kind) {
        case ABT_INFO_QUERY_KIND_ENABLED_CHECK_ERROR:
        case ABT_INFO_QUERY_KIND_ENABLED_PRESERVE_FPU:
        case ABT_INFO_QUERY_KIND_ENABLED_THREAD_CANCEL:
        case ABT_INFO_QUERY_KIND_ENABLED_TASK_CANCEL:
        case ABT_INFO_QUERY_KIND_ENABLED_MIGRATION:
        case ABT_INFO_QUERY_KIND_ENABLED_STACKABLE_SCHED:
        case ABT_INFO_QUERY_KIND_ENABLED_EXTERNAL_THREAD:
        case ABT_INFO_QUERY_KIND_ENABLED_SCHED_SLEEP:
        case ABT_INFO_QUERY_KIND_ENABLED_AFFINITY:
        case ABT_INFO_QUERY_KIND_ENABLED_LAZY_STACK_ALLOC:
        case ABT_INFO_QUERY_KIND_ENABLED_TOOL:
        case ABT_INFO_QUERY_KIND_FCONTEXT:
            return answer<ABT_bool>(val, ABT_TRUE);
        case ABT_INFO_QUERY_KIND_ENABLED_DEBUG:
        case ABT_INFO_QUERY_KIND_ENABLED_PRINT_ERRNO:
        case ABT_INFO_QUERY_KIND_ENABLED_LOG:
        case ABT_INFO_QUERY_KIND_ENABLED_VALGRIND:
        case ABT_INFO_QUERY_KIND_ENABLED_CHECK_POOL_PRODUCER:
        case ABT_INFO_QUERY_KIND_ENABLED_CHECK_POOL_CONSUMER:
        case ABT_INFO_QUERY_KIND_ENABLED_PRINT_CONFIG:
        case ABT_INFO_QUERY_KIND_DYNAMIC_PROMOTION:
        case ABT_INFO_QUERY_KIND_ENABLED_STACK_UNWIND:
            return answer<ABT_bool>(val, ABT_FALSE);
        case ABT_INFO_QUERY_KIND_MAX_NUM_XSTREAMS:
            return answer(val, std::max(1u, std::thread::hardware_concurrency()));
        case ABT_INFO_QUERY_KIND_DEFAULT_THREAD_STACKSIZE:
        case ABT_INFO_QUERY_KIND_DEFAULT_SCHED_STACKSIZE:
            return answer(val, stack_bytes_of({}));
        case ABT_INFO_QUERY_KIND_DEFAULT_SCHED_EVENT_FREQ:
            return answer(val, std::uint64_t{1});
        case ABT_INFO_QUERY_KIND_DEFAULT_SCHED_SLEEP_NSEC:
            return answer(val, std::uint64_t{0});
        case ABT_INFO_QUERY_KIND_ENABLED_STACK_OVERFLOW_CHECK:
            return answer(val, 1);
        case ABT_INFO_QUERY_KIND_WAIT_POLICY:
            return answer(val, 0);  // Idle streams sleep.
    }
    return ABT_ERR_INV_QUERY_KIND;
}

int ABT_info_print_config(FILE* fp) {
    if (!initialized()) return ABT_ERR_UNINITIALIZED;
    std::fprintf(
        fp, "Argobots %s interface on Amalgam\n - streams: %zu\n - stack of a ULT: %zu bytes\n",
        ABT_VERSION, runtime::get()->number_of_streams(), stack_bytes_of({}));
    return ABT_SUCCESS;
}

int ABT_info_print_all_xstreams(FILE* fp) {
    if (!initialized()) return ABT_ERR_UNINITIALIZED;
    return guarded([fp] {
        const std::vector<held_stream> streams = runtime::get()->hold_all();
        std::fprintf(fp, "%zu streams\n", streams.size());
        for (const held_stream& each : streams)
            print_stream(fp, each);
        return ABT_SUCCESS;
    });
}

int ABT_info_print_xstream(FILE* fp, ABT_xstream xstream) {
    if (xstream == nullptr) return ABT_ERR_INV_XSTREAM;
    print_stream(fp, runtime::get()->hold(*xstream));
    return ABT_SUCCESS;
}

int ABT_info_print_sched(FILE* fp, ABT_sched sched) {
    if (sched == nullptr) return ABT_ERR_INV_SCHED;
    std::fprintf(fp, "  scheduler %p (%s), %zu pools\n", static_cast<void*>(sched),
                 sched->predefined() ? "predefined" : "the user's", sched->pools.size());
    for (ABT_pool each : sched->pools)
        ABT_info_print_pool(fp, each);
    return ABT_SUCCESS;
}

int ABT_info_print_pool(FILE* fp, ABT_pool pool) {
    if (pool == nullptr) return ABT_ERR_INV_POOL;
    std::fprintf(fp, "    pool %d: %zu ready, %zu in all\n", pool->id, pool->size(), pool->total());
    return ABT_SUCCESS;
}

unit_words::unit_words(ABT_thread_opaque& who) noexcept
    : kind(who.kind), state(told_state(who.state.load())), id(id_of(who)) {
    if (const ABT_pool_opaque* const where = who.pool.load()) pool = where->id;
}

void unit_words::print(FILE* to) const noexcept {
    std::fprintf(to, "%s %llu: %s, pool %d\n", name_of_kind(kind),
                 static_cast<unsigned long long>(id), name_of_state(state), pool);
}

int ABT_info_print_thread(FILE* fp, ABT_thread thread) {
    if (thread == nullptr) return ABT_ERR_INV_THREAD;
    unit_words(*thread).print(fp);
    return ABT_SUCCESS;
}

int ABT_info_print_thread_attr(FILE* fp, ABT_thread_attr attr) {
    if (attr == nullptr) return ABT_ERR_INV_THREAD_ATTR;
    std::fprintf(fp, "attributes of a ULT: stack of %zu bytes, %s\n", stack_bytes_of(*attr),
                 attr->migratable ? "may migrate" : "stays in its pool");
    return ABT_SUCCESS;
}

int ABT_info_print_task(FILE* fp, ABT_task task) {
    return ABT_info_print_thread(fp, task);
}

int ABT_info_print_thread_stack(FILE* fp, ABT_thread thread) {
    return print_stack(fp, thread);
}

int ABT_info_print_thread_stacks_in_pool(FILE* fp, ABT_pool pool) {
    if (pool == nullptr) return ABT_ERR_INV_POOL;
    std::fprintf(fp, "ULTs in pool %d\n", pool->id);
    return print_stacks_in(fp, *pool);
}

int ABT_info_trigger_print_all_thread_stacks(FILE* fp, double timeout,
                                             void (*cb_func)(ABT_bool, void*), void* arg) {
    if (!initialized()) return ABT_ERR_UNINITIALIZED;
    return trigger_print(fp, timeout, cb_func, arg);
}
