#include <amalgam/tasks/extension/cpu_relax.hpp>
#include <amalgam/tasks/extension/guest.hpp>

#include "sync/sync.hpp"

using namespace amalgam::argobots;

namespace {

const void* who_locks() noexcept {
    return &amalgam::detail::guest();
}

/// For a recursive one. True: the caller has it, once more.
bool has_again(ABT_mutex_opaque& which) noexcept {
    if (which.recursive == 0 || which.owner.load(std::memory_order_relaxed) != who_locks())
        return false;
    ++which.depth;
    return true;
}

void took(ABT_mutex_opaque& which) noexcept {
    if (which.recursive != 0) which.owner.store(who_locks(), std::memory_order_relaxed);
}

}  // namespace

int ABT_mutex_create(ABT_mutex* newmutex) {
    return ABT_mutex_create_with_attr(nullptr, newmutex);
}

int ABT_mutex_create_with_attr(ABT_mutex_attr attr, ABT_mutex* newmutex) {
    return guarded([=] {
        *newmutex = new ABT_mutex_opaque;
        (*newmutex)->recursive = attr != nullptr && attr->recursive ? 1 : 0;
        return ABT_SUCCESS;
    });
}

int ABT_mutex_free(ABT_mutex* mutex) {
    if (*mutex == nullptr) return ABT_ERR_INV_MUTEX;
    delete *mutex;
    *mutex = nullptr;
    return ABT_SUCCESS;
}

int ABT_mutex_lock(ABT_mutex mutex) {
    if (mutex == nullptr) return ABT_ERR_INV_MUTEX;
    if (has_again(*mutex)) return ABT_SUCCESS;
    if (!mutex->lock.try_lock()) {
        if (between_ults::here()) return ABT_ERR_MUTEX;
        mutex->lock.lock({ABT_SYNC_EVENT_TYPE_MUTEX, mutex});
    }
    took(*mutex);
    return ABT_SUCCESS;
}

int ABT_mutex_lock_high(ABT_mutex mutex) {
    return ABT_mutex_lock(mutex);
}

int ABT_mutex_lock_low(ABT_mutex mutex) {
    return ABT_mutex_lock(mutex);
}

int ABT_mutex_trylock(ABT_mutex mutex) {
    if (mutex == nullptr) return ABT_ERR_INV_MUTEX;
    if (has_again(*mutex)) return ABT_SUCCESS;
    if (!mutex->lock.try_lock()) return ABT_ERR_MUTEX_LOCKED;
    took(*mutex);
    return ABT_SUCCESS;
}

int ABT_mutex_spinlock(ABT_mutex mutex) {
    int error;
    while ((error = ABT_mutex_trylock(mutex)) == ABT_ERR_MUTEX_LOCKED)
        amalgam::detail::cpu_relax();
    return error;
}

int ABT_mutex_unlock(ABT_mutex mutex) {
    if (mutex == nullptr) return ABT_ERR_INV_MUTEX;
    if (mutex->recursive != 0) {
        if (mutex->depth != 0) {
            --mutex->depth;
            return ABT_SUCCESS;
        }
        mutex->owner.store(nullptr, std::memory_order_relaxed);
    }
    mutex->lock.unlock();
    return ABT_SUCCESS;
}

int ABT_mutex_unlock_se(ABT_mutex mutex) {
    return ABT_mutex_unlock(mutex);
}

int ABT_mutex_unlock_de(ABT_mutex mutex) {
    return ABT_mutex_unlock(mutex);
}

int ABT_mutex_equal(ABT_mutex mutex1, ABT_mutex mutex2, ABT_bool* result) {
    *result = mutex1 == mutex2;
    return ABT_SUCCESS;
}

int ABT_mutex_get_attr(ABT_mutex mutex, ABT_mutex_attr* attr) {
    if (mutex == nullptr) return ABT_ERR_INV_MUTEX;
    if (const int error = ABT_mutex_attr_create(attr)) return error;
    (*attr)->recursive = mutex->recursive != 0;
    return ABT_SUCCESS;
}

int ABT_mutex_attr_create(ABT_mutex_attr* newattr) {
    return guarded([newattr] {
        *newattr = new ABT_mutex_attr_opaque;
        return ABT_SUCCESS;
    });
}

int ABT_mutex_attr_free(ABT_mutex_attr* attr) {
    if (*attr == nullptr) return ABT_ERR_INV_MUTEX_ATTR;
    delete *attr;
    *attr = nullptr;
    return ABT_SUCCESS;
}

int ABT_mutex_attr_set_recursive(ABT_mutex_attr attr, ABT_bool recursive) {
    if (attr == nullptr) return ABT_ERR_INV_MUTEX_ATTR;
    attr->recursive = recursive != ABT_FALSE;
    return ABT_SUCCESS;
}

int ABT_mutex_attr_get_recursive(ABT_mutex_attr attr, ABT_bool* recursive) {
    if (attr == nullptr) return ABT_ERR_INV_MUTEX_ATTR;
    *recursive = attr->recursive;
    return ABT_SUCCESS;
}
