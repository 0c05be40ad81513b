#ifndef AMALGAM_ABT_SYNC_H
#define AMALGAM_ABT_SYNC_H

/* Synchronization. Functions return ABT_SUCCESS or an error number. */

#include <time.h>

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Waiting parks a ULT and blocks a plain thread. A tasklet may wait for a mutex only, which blocks
 * its stream. Objects may be freed once nobody waits. */
int ABT_mutex_create(ABT_mutex* newmutex);
int ABT_mutex_create_with_attr(ABT_mutex_attr attr, ABT_mutex* newmutex);
int ABT_mutex_free(ABT_mutex* mutex);
int ABT_mutex_lock(ABT_mutex mutex);
int ABT_mutex_lock_high(ABT_mutex mutex);
int ABT_mutex_lock_low(ABT_mutex mutex);
int ABT_mutex_trylock(ABT_mutex mutex);
int ABT_mutex_spinlock(ABT_mutex mutex);
int ABT_mutex_unlock(ABT_mutex mutex);
int ABT_mutex_unlock_se(ABT_mutex mutex);
int ABT_mutex_unlock_de(ABT_mutex mutex);
int ABT_mutex_equal(ABT_mutex mutex1, ABT_mutex mutex2, ABT_bool* result);
int ABT_mutex_get_attr(ABT_mutex mutex, ABT_mutex_attr* attr);

int ABT_mutex_attr_create(ABT_mutex_attr* newattr);
int ABT_mutex_attr_free(ABT_mutex_attr* attr);
int ABT_mutex_attr_set_recursive(ABT_mutex_attr attr, ABT_bool recursive);
int ABT_mutex_attr_get_recursive(ABT_mutex_attr attr, ABT_bool* recursive);

int ABT_cond_create(ABT_cond* newcond);
int ABT_cond_free(ABT_cond* cond);
int ABT_cond_wait(ABT_cond cond, ABT_mutex mutex);
int ABT_cond_timedwait(ABT_cond cond, ABT_mutex mutex, const struct timespec* abstime);
int ABT_cond_signal(ABT_cond cond);
int ABT_cond_broadcast(ABT_cond cond);

int ABT_rwlock_create(ABT_rwlock* newrwlock);
int ABT_rwlock_free(ABT_rwlock* rwlock);
int ABT_rwlock_rdlock(ABT_rwlock rwlock);
int ABT_rwlock_wrlock(ABT_rwlock rwlock);
int ABT_rwlock_unlock(ABT_rwlock rwlock);

int ABT_eventual_create(int nbytes, ABT_eventual* neweventual);
int ABT_eventual_free(ABT_eventual* eventual);
int ABT_eventual_wait(ABT_eventual eventual, void** value);
int ABT_eventual_timedwait(ABT_eventual eventual, void** value, const struct timespec* abstime);
int ABT_eventual_test(ABT_eventual eventual, void** value, ABT_bool* is_ready);
int ABT_eventual_set(ABT_eventual eventual, void* value, int nbytes);
int ABT_eventual_reset(ABT_eventual eventual);

int ABT_future_create(uint32_t num_compartments, void (*cb_func)(void** arg),
                      ABT_future* newfuture);
int ABT_future_free(ABT_future* future);
int ABT_future_wait(ABT_future future);
int ABT_future_test(ABT_future future, ABT_bool* is_ready);
int ABT_future_set(ABT_future future, void* value);
int ABT_future_reset(ABT_future future);

int ABT_barrier_create(uint32_t num_waiters, ABT_barrier* newbarrier);
int ABT_barrier_reinit(ABT_barrier barrier, uint32_t num_waiters);
int ABT_barrier_free(ABT_barrier* barrier);
int ABT_barrier_wait(ABT_barrier barrier);
int ABT_barrier_get_num_waiters(ABT_barrier barrier, uint32_t* num_waiters);

#ifdef __cplusplus
}
#endif

#endif
