#include <cstring>

#include "runtime.hpp"

namespace {

/// Null: no such number.
const char* name_of(int error) noexcept {
    switch (error) {
        case ABT_SUCCESS:
            return "ABT_SUCCESS";
        case ABT_ERR_UNINITIALIZED:
            return "ABT_ERR_UNINITIALIZED";
        case ABT_ERR_MEM:
            return "ABT_ERR_MEM";
        case ABT_ERR_OTHER:
            return "ABT_ERR_OTHER";
        case ABT_ERR_INV_XSTREAM:
            return "ABT_ERR_INV_XSTREAM";
        case ABT_ERR_INV_XSTREAM_RANK:
            return "ABT_ERR_INV_XSTREAM_RANK";
        case ABT_ERR_INV_XSTREAM_BARRIER:
            return "ABT_ERR_INV_XSTREAM_BARRIER";
        case ABT_ERR_INV_SCHED:
            return "ABT_ERR_INV_SCHED";
        case ABT_ERR_INV_SCHED_KIND:
            return "ABT_ERR_INV_SCHED_KIND";
        case ABT_ERR_INV_SCHED_PREDEF:
            return "ABT_ERR_INV_SCHED_PREDEF";
        case ABT_ERR_INV_SCHED_TYPE:
            return "ABT_ERR_INV_SCHED_TYPE";
        case ABT_ERR_INV_SCHED_CONFIG:
            return "ABT_ERR_INV_SCHED_CONFIG";
        case ABT_ERR_INV_POOL:
            return "ABT_ERR_INV_POOL";
        case ABT_ERR_INV_POOL_KIND:
            return "ABT_ERR_INV_POOL_KIND";
        case ABT_ERR_INV_POOL_ACCESS:
            return "ABT_ERR_INV_POOL_ACCESS";
        case ABT_ERR_INV_UNIT:
            return "ABT_ERR_INV_UNIT";
        case ABT_ERR_INV_THREAD:
            return "ABT_ERR_INV_THREAD";
        case ABT_ERR_INV_THREAD_ATTR:
            return "ABT_ERR_INV_THREAD_ATTR";
        case ABT_ERR_INV_TASK:
            return "ABT_ERR_INV_TASK";
        case ABT_ERR_INV_KEY:
            return "ABT_ERR_INV_KEY";
        case ABT_ERR_INV_MUTEX:
            return "ABT_ERR_INV_MUTEX";
        case ABT_ERR_INV_MUTEX_ATTR:
            return "ABT_ERR_INV_MUTEX_ATTR";
        case ABT_ERR_INV_COND:
            return "ABT_ERR_INV_COND";
        case ABT_ERR_INV_RWLOCK:
            return "ABT_ERR_INV_RWLOCK";
        case ABT_ERR_INV_EVENTUAL:
            return "ABT_ERR_INV_EVENTUAL";
        case ABT_ERR_INV_FUTURE:
            return "ABT_ERR_INV_FUTURE";
        case ABT_ERR_INV_BARRIER:
            return "ABT_ERR_INV_BARRIER";
        case ABT_ERR_INV_TIMER:
            return "ABT_ERR_INV_TIMER";
        case ABT_ERR_INV_QUERY_KIND:
            return "ABT_ERR_INV_QUERY_KIND";
        case ABT_ERR_XSTREAM:
            return "ABT_ERR_XSTREAM";
        case ABT_ERR_XSTREAM_STATE:
            return "ABT_ERR_XSTREAM_STATE";
        case ABT_ERR_XSTREAM_BARRIER:
            return "ABT_ERR_XSTREAM_BARRIER";
        case ABT_ERR_SCHED:
            return "ABT_ERR_SCHED";
        case ABT_ERR_SCHED_CONFIG:
            return "ABT_ERR_SCHED_CONFIG";
        case ABT_ERR_POOL:
            return "ABT_ERR_POOL";
        case ABT_ERR_UNIT:
            return "ABT_ERR_UNIT";
        case ABT_ERR_THREAD:
            return "ABT_ERR_THREAD";
        case ABT_ERR_TASK:
            return "ABT_ERR_TASK";
        case ABT_ERR_KEY:
            return "ABT_ERR_KEY";
        case ABT_ERR_MUTEX:
            return "ABT_ERR_MUTEX";
        case ABT_ERR_MUTEX_LOCKED:
            return "ABT_ERR_MUTEX_LOCKED";
        case ABT_ERR_COND:
            return "ABT_ERR_COND";
        case ABT_ERR_COND_TIMEDOUT:
            return "ABT_ERR_COND_TIMEDOUT";
        case ABT_ERR_RWLOCK:
            return "ABT_ERR_RWLOCK";
        case ABT_ERR_EVENTUAL:
            return "ABT_ERR_EVENTUAL";
        case ABT_ERR_FUTURE:
            return "ABT_ERR_FUTURE";
        case ABT_ERR_BARRIER:
            return "ABT_ERR_BARRIER";
        case ABT_ERR_TIMER:
            return "ABT_ERR_TIMER";
        case ABT_ERR_MIGRATION_TARGET:
            return "ABT_ERR_MIGRATION_TARGET";
        case ABT_ERR_MIGRATION_NA:
            return "ABT_ERR_MIGRATION_NA";
        case ABT_ERR_MISSING_JOIN:
            return "ABT_ERR_MISSING_JOIN";
        case ABT_ERR_FEATURE_NA:
            return "ABT_ERR_FEATURE_NA";
        case ABT_ERR_INV_TOOL_CONTEXT:
            return "ABT_ERR_INV_TOOL_CONTEXT";
        case ABT_ERR_INV_ARG:
            return "ABT_ERR_INV_ARG";
        case ABT_ERR_SYS:
            return "ABT_ERR_SYS";
        case ABT_ERR_CPUID:
            return "ABT_ERR_CPUID";
        case ABT_ERR_INV_POOL_CONFIG:
            return "ABT_ERR_INV_POOL_CONFIG";
        case ABT_ERR_INV_POOL_USER_DEF:
            return "ABT_ERR_INV_POOL_USER_DEF";
        default:
            return nullptr;
    }
}

}  // namespace

int ABT_error_get_str(int err, char* str, size_t* len) {
    const char* const name = name_of(err);
    if (name == nullptr) return ABT_ERR_OTHER;
    if (str != nullptr) std::strcpy(str, name);
    if (len != nullptr) *len = std::strlen(name);
    return ABT_SUCCESS;
}
