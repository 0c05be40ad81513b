#ifndef AMALGAM_ABT_POOLS_H
#define AMALGAM_ABT_POOLS_H

/* Pools and their units. Functions return ABT_SUCCESS or an error number. */

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Pools. Any thread may use any pool, whatever its access says. `automatic`: freed with the last
 * scheduler that has it. */
int ABT_pool_create(ABT_pool_user_def def, ABT_pool_config config, ABT_pool* newpool);
int ABT_pool_create_basic(ABT_pool_kind kind, ABT_pool_access access, ABT_bool automatic,
                          ABT_pool* newpool);
int ABT_pool_free(ABT_pool* pool);
int ABT_pool_get_access(ABT_pool pool, ABT_pool_access* access);
int ABT_pool_is_empty(ABT_pool pool, ABT_bool* is_empty);
int ABT_pool_get_size(ABT_pool pool, size_t* size);
int ABT_pool_get_total_size(ABT_pool pool, size_t* size);
int ABT_pool_pop_thread(ABT_pool pool, ABT_thread* thread);
int ABT_pool_pop_thread_ex(ABT_pool pool, ABT_thread* thread, ABT_pool_context pool_ctx);
int ABT_pool_pop_threads(ABT_pool pool, ABT_thread* threads, size_t len, size_t* num);
int ABT_pool_pop_threads_ex(ABT_pool pool, ABT_thread* threads, size_t len, size_t* num,
                            ABT_pool_context pool_ctx);
int ABT_pool_push_thread(ABT_pool pool, ABT_thread thread);
int ABT_pool_push_thread_ex(ABT_pool pool, ABT_thread thread, ABT_pool_context pool_ctx);
int ABT_pool_push_threads(ABT_pool pool, const ABT_thread* threads, size_t num);
int ABT_pool_push_threads_ex(ABT_pool pool, const ABT_thread* threads, size_t num,
                             ABT_pool_context pool_ctx);
int ABT_pool_pop_wait_thread(ABT_pool pool, ABT_thread* thread, double time_secs);
int ABT_pool_pop_wait_thread_ex(ABT_pool pool, ABT_thread* thread, double time_secs,
                                ABT_pool_context pool_ctx);
/* Calls print_fn() with the pool locked: it may neither use the pool, nor wait, nor print stacks.
 * So does ABT_pool_print_all(). */
int ABT_pool_print_all_threads(ABT_pool pool, void* arg, void (*print_fn)(void* arg, ABT_thread));
int ABT_pool_set_data(ABT_pool pool, void* data);
int ABT_pool_get_data(ABT_pool pool, void** data);
int ABT_pool_add_sched(ABT_pool pool, ABT_sched sched);
int ABT_pool_get_id(ABT_pool pool, int* id);
int ABT_pool_pop(ABT_pool pool, ABT_unit* unit);
int ABT_pool_pop_wait(ABT_pool pool, ABT_unit* unit, double time_secs);
int ABT_pool_pop_timedwait(ABT_pool pool, ABT_unit* unit, double abstime_secs);
int ABT_pool_remove(ABT_pool pool, ABT_unit unit);
int ABT_pool_push(ABT_pool pool, ABT_unit unit);
int ABT_pool_print_all(ABT_pool pool, void* arg, void (*print_fn)(void* arg, ABT_unit));

/* Settings of a pool, by key. Owner: the caller. */
int ABT_pool_config_create(ABT_pool_config* config);
int ABT_pool_config_free(ABT_pool_config* config);
int ABT_pool_config_set(ABT_pool_config config, int key, ABT_pool_config_type type,
                        const void* val);
int ABT_pool_config_get(ABT_pool_config config, int key, ABT_pool_config_type* p_type, void* val);

/* A user's pool. Its functions run on streams and plain threads and must not wait: in pop and push,
 * to lock a locked mutex is ABT_ERR_MUTEX, so use ABT_mutex_spinlock(). A definition may be freed
 * once its pools exist. */
int ABT_pool_user_def_create(ABT_pool_user_create_unit_fn p_create_unit,
                             ABT_pool_user_free_unit_fn p_free_unit,
                             ABT_pool_user_is_empty_fn p_is_empty, ABT_pool_user_pop_fn p_pop,
                             ABT_pool_user_push_fn p_push, ABT_pool_user_def* newdef);
int ABT_pool_user_def_free(ABT_pool_user_def* def);
int ABT_pool_user_def_set_init(ABT_pool_user_def def, ABT_pool_user_init_fn p_init);
int ABT_pool_user_def_set_free(ABT_pool_user_def def, ABT_pool_user_free_fn p_free);
int ABT_pool_user_def_set_get_size(ABT_pool_user_def def, ABT_pool_user_get_size_fn p_get_size);
int ABT_pool_user_def_set_pop_wait(ABT_pool_user_def def, ABT_pool_user_pop_wait_fn p_pop_wait);
int ABT_pool_user_def_set_pop_many(ABT_pool_user_def def, ABT_pool_user_pop_many_fn p_pop_many);
int ABT_pool_user_def_set_push_many(ABT_pool_user_def def, ABT_pool_user_push_many_fn p_push_many);
int ABT_pool_user_def_set_print_all(ABT_pool_user_def def, ABT_pool_user_print_all_fn p_print_all);

/* What a user's pool holds. A unit is valid until its ULT is freed or associated with another pool.
 */
int ABT_unit_get_thread(ABT_unit unit, ABT_thread* thread);
int ABT_unit_set_associated_pool(ABT_unit unit, ABT_pool pool);

#ifdef __cplusplus
}
#endif

#endif
