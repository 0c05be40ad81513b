#ifndef AMALGAM_ABT_THREADS_H
#define AMALGAM_ABT_THREADS_H

/* ULTs, tasklets and their values. Functions return ABT_SUCCESS or an error number. */

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ULTs. With `newthread` null they are freed when they end; otherwise by ABT_thread_free(), which
 * joins. Any number of callers may join one at once; free and revive wait for those who wait
 * already. Stacks are of 256 KiB of address space unless an attribute says otherwise. No memory is
 * ABT_ERR_MEM. */
int ABT_thread_create(ABT_pool pool, void (*thread_func)(void*), void* arg, ABT_thread_attr attr,
                      ABT_thread* newthread);
int ABT_thread_create_to(ABT_pool pool, void (*thread_func)(void*), void* arg, ABT_thread_attr attr,
                         ABT_thread* newthread);
int ABT_thread_create_on_xstream(ABT_xstream xstream, void (*thread_func)(void*), void* arg,
                                 ABT_thread_attr attr, ABT_thread* newthread);
int ABT_thread_create_many(int num_threads, ABT_pool* pool_list, void (**thread_func_list)(void*),
                           void** arg_list, ABT_thread_attr attr, ABT_thread* newthread_list);
int ABT_thread_revive(ABT_pool pool, void (*thread_func)(void*), void* arg, ABT_thread* thread);
int ABT_thread_revive_to(ABT_pool pool, void (*thread_func)(void*), void* arg, ABT_thread* thread);
int ABT_thread_free(ABT_thread* thread);
int ABT_thread_free_many(int num_threads, ABT_thread* thread_list);
int ABT_thread_join(ABT_thread thread);
int ABT_thread_join_many(int num_threads, ABT_thread* thread_list);
int ABT_thread_exit(void);
int ABT_thread_cancel(ABT_thread thread);
int ABT_thread_self(ABT_thread* thread);
int ABT_thread_self_id(ABT_unit_id* id);
int ABT_thread_get_last_xstream(ABT_thread thread, ABT_xstream* xstream);
int ABT_thread_get_state(ABT_thread thread, ABT_thread_state* state);
int ABT_thread_get_last_pool(ABT_thread thread, ABT_pool* pool);
int ABT_thread_get_last_pool_id(ABT_thread thread, int* id);
int ABT_thread_get_unit(ABT_thread thread, ABT_unit* unit);
int ABT_thread_set_associated_pool(ABT_thread thread, ABT_pool pool);
int ABT_thread_yield_to(ABT_thread thread);
int ABT_thread_yield(void);
int ABT_thread_resume(ABT_thread thread);
int ABT_thread_migrate_to_xstream(ABT_thread thread, ABT_xstream xstream);
int ABT_thread_migrate_to_sched(ABT_thread thread, ABT_sched sched);
int ABT_thread_migrate_to_pool(ABT_thread thread, ABT_pool pool);
int ABT_thread_migrate(ABT_thread thread);
int ABT_thread_set_callback(ABT_thread thread, void (*cb_func)(ABT_thread thread, void* cb_arg),
                            void* cb_arg);
int ABT_thread_set_migratable(ABT_thread thread, ABT_bool migratable);
int ABT_thread_is_migratable(ABT_thread thread, ABT_bool* is_migratable);
int ABT_thread_is_primary(ABT_thread thread, ABT_bool* is_primary);
int ABT_thread_is_unnamed(ABT_thread thread, ABT_bool* is_unnamed);
int ABT_thread_equal(ABT_thread thread1, ABT_thread thread2, ABT_bool* result);
int ABT_thread_get_stacksize(ABT_thread thread, size_t* stacksize);
int ABT_thread_get_stack(ABT_thread thread, void** stackaddr, size_t* stacksize);
int ABT_thread_get_id(ABT_thread thread, ABT_unit_id* thread_id);
int ABT_thread_set_arg(ABT_thread thread, void* arg);
int ABT_thread_get_arg(ABT_thread thread, void** arg);
int ABT_thread_get_thread_func(ABT_thread thread, void (**thread_func)(void*));
int ABT_thread_set_specific(ABT_thread thread, ABT_key key, void* value);
int ABT_thread_get_specific(ABT_thread thread, ABT_key key, void** value);
int ABT_thread_get_attr(ABT_thread thread, ABT_thread_attr* attr);

/* Attributes of a new ULT. Owner: the caller. */
int ABT_thread_attr_create(ABT_thread_attr* newattr);
int ABT_thread_attr_free(ABT_thread_attr* attr);
int ABT_thread_attr_set_stack(ABT_thread_attr attr, void* stackaddr, size_t stacksize);
int ABT_thread_attr_get_stack(ABT_thread_attr attr, void** stackaddr, size_t* stacksize);
int ABT_thread_attr_set_stacksize(ABT_thread_attr attr, size_t stacksize);
int ABT_thread_attr_get_stacksize(ABT_thread_attr attr, size_t* stacksize);
int ABT_thread_attr_set_callback(ABT_thread_attr attr,
                                 void (*cb_func)(ABT_thread thread, void* cb_arg), void* cb_arg);
int ABT_thread_attr_set_migratable(ABT_thread_attr attr, ABT_bool is_migratable);

/* Tasklets. They have no stack, and cannot park: yield, suspend, join and exit are
 * ABT_ERR_INV_THREAD, and a wait for an eventual, a future, a barrier and the like the error of its
 * kind. To wait for a mutex or a stream blocks their stream, for ever if a ULT of the same stream
 * holds the mutex. */
int ABT_task_create(ABT_pool pool, void (*task_func)(void*), void* arg, ABT_task* newtask);
int ABT_task_create_on_xstream(ABT_xstream xstream, void (*task_func)(void*), void* arg,
                               ABT_task* newtask);
int ABT_task_revive(ABT_pool pool, void (*task_func)(void*), void* arg, ABT_task* task);
int ABT_task_free(ABT_task* task);
int ABT_task_join(ABT_task task);
int ABT_task_cancel(ABT_task task);
int ABT_task_self(ABT_task* task);
int ABT_task_self_id(uint64_t* id);
int ABT_task_get_xstream(ABT_task task, ABT_xstream* xstream);
int ABT_task_get_state(ABT_task task, ABT_task_state* state);
int ABT_task_get_last_pool(ABT_task task, ABT_pool* pool);
int ABT_task_get_last_pool_id(ABT_task task, int* id);
int ABT_task_set_migratable(ABT_task task, ABT_bool flag);
int ABT_task_is_migratable(ABT_task task, ABT_bool* flag);
int ABT_task_equal(ABT_task task1, ABT_task task2, ABT_bool* result);
int ABT_task_get_id(ABT_task task, uint64_t* task_id);
int ABT_task_get_arg(ABT_task task, void** arg);
#define ABT_task_is_unnamed ABT_thread_is_unnamed
#define ABT_task_set_specific ABT_thread_set_specific
#define ABT_task_get_specific ABT_thread_get_specific

/* The calling ULT. On a plain thread these return ABT_ERR_INV_XSTREAM. Exit unwinds the stack as an
 * exception does: C code must have unwind tables (-fexceptions where they are no default). */
int ABT_self_get_xstream(ABT_xstream* xstream);
int ABT_self_get_xstream_rank(int* rank);
int ABT_self_get_thread(ABT_thread* thread);
int ABT_self_get_thread_id(ABT_unit_id* id);
int ABT_self_set_specific(ABT_key key, void* value);
int ABT_self_get_specific(ABT_key key, void** value);
int ABT_self_get_type(ABT_unit_type* type);
int ABT_self_is_primary(ABT_bool* is_primary);
int ABT_self_on_primary_xstream(ABT_bool* on_primary);
int ABT_self_is_unnamed(ABT_bool* is_unnamed);
int ABT_self_get_last_pool(ABT_pool* pool);
int ABT_self_get_last_pool_id(int* pool_id);
int ABT_self_set_associated_pool(ABT_pool pool);
int ABT_self_get_unit(ABT_unit* unit);
int ABT_self_yield(void);
int ABT_self_yield_to(ABT_thread thread);
int ABT_self_resume_yield_to(ABT_thread thread);
int ABT_self_suspend(void);
int ABT_self_suspend_to(ABT_thread thread);
int ABT_self_resume_suspend_to(ABT_thread thread);
int ABT_self_exit(void);
int ABT_self_exit_to(ABT_thread thread);
int ABT_self_resume_exit_to(ABT_thread thread);
int ABT_self_schedule(ABT_thread thread, ABT_pool pool);
int ABT_self_set_arg(void* arg);
int ABT_self_get_arg(void** arg);
int ABT_self_get_thread_func(void (**thread_func)(void*));
#define ABT_self_get_task ABT_self_get_thread
#define ABT_self_get_task_id ABT_self_get_thread_id

/* Values of a ULT. The destructor of a key runs when the ULT is freed. */
int ABT_key_create(void (*destructor)(void* value), ABT_key* newkey);
int ABT_key_free(ABT_key* key);
int ABT_key_set(ABT_key key, void* value);
int ABT_key_get(ABT_key key, void** value);

#ifdef __cplusplus
}
#endif

#endif
