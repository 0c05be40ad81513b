#include "sync/sync.hpp"

using namespace amalgam::argobots;

/// Writers do not overtake readers that hold it, nor the other way round.
struct ABT_rwlock_opaque {
    amalgam::mutex lock;
    amalgam::condition_variable changed;
    std::size_t readers = 0;
    bool writer = false;
};

int ABT_rwlock_create(ABT_rwlock* newrwlock) {
    return guarded([newrwlock] {
        *newrwlock = new ABT_rwlock_opaque;
        return ABT_SUCCESS;
    });
}

int ABT_rwlock_free(ABT_rwlock* rwlock) {
    if (*rwlock == nullptr) return ABT_ERR_INV_RWLOCK;
    delete *rwlock;
    *rwlock = nullptr;
    return ABT_SUCCESS;
}

int ABT_rwlock_rdlock(ABT_rwlock rwlock) {
    if (rwlock == nullptr) return ABT_ERR_INV_RWLOCK;
    if (caller_may_not_wait()) return ABT_ERR_RWLOCK;
    locked_by_caller hold(rwlock->lock, {ABT_SYNC_EVENT_TYPE_RWLOCK, rwlock});
    while (rwlock->writer)
        hold.wait(rwlock->changed);
    ++rwlock->readers;
    return ABT_SUCCESS;
}

int ABT_rwlock_wrlock(ABT_rwlock rwlock) {
    if (rwlock == nullptr) return ABT_ERR_INV_RWLOCK;
    if (caller_may_not_wait()) return ABT_ERR_RWLOCK;
    locked_by_caller hold(rwlock->lock, {ABT_SYNC_EVENT_TYPE_RWLOCK, rwlock});
    while (rwlock->writer || rwlock->readers != 0)
        hold.wait(rwlock->changed);
    rwlock->writer = true;
    return ABT_SUCCESS;
}

int ABT_rwlock_unlock(ABT_rwlock rwlock) {
    if (rwlock == nullptr) return ABT_ERR_INV_RWLOCK;
    const locked_by_caller hold(rwlock->lock, {ABT_SYNC_EVENT_TYPE_RWLOCK, rwlock});
    if (rwlock->writer) {
        rwlock->writer = false;
    } else if (rwlock->readers != 0) {
        --rwlock->readers;
    } else {
        return ABT_ERR_RWLOCK;
    }
    if (rwlock->readers == 0) rwlock->changed.notify_all();
    return ABT_SUCCESS;
}
