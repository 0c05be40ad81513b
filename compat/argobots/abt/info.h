#ifndef AMALGAM_ABT_INFO_H
#define AMALGAM_ABT_INFO_H

/* Errors, timers, settings and tools. Functions return ABT_SUCCESS or an error number. */

#include <stdio.h>

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The name of an error number; `len` without its terminating zero. */
int ABT_error_get_str(int err, char* str, size_t* len);

/* Seconds by the steady clock, and stopwatches. */
double ABT_get_wtime(void);
int ABT_timer_create(ABT_timer* newtimer);
int ABT_timer_dup(ABT_timer timer, ABT_timer* newtimer);
int ABT_timer_free(ABT_timer* timer);
int ABT_timer_start(ABT_timer timer);
int ABT_timer_stop(ABT_timer timer);
int ABT_timer_read(ABT_timer timer, double* secs);
int ABT_timer_stop_and_read(ABT_timer timer, double* secs);
int ABT_timer_stop_and_add(ABT_timer timer, double* secs);
int ABT_timer_get_overhead(double* overhead);

/* Settings, and what exists, in words. */
int ABT_info_query_config(ABT_info_query_kind query_kind, void* val);
int ABT_info_print_config(FILE* fp);
int ABT_info_print_all_xstreams(FILE* fp);
int ABT_info_print_xstream(FILE* fp, ABT_xstream xstream);
int ABT_info_print_sched(FILE* fp, ABT_sched sched);
int ABT_info_print_pool(FILE* fp, ABT_pool pool);
int ABT_info_print_thread(FILE* fp, ABT_thread thread);
int ABT_info_print_thread_attr(FILE* fp, ABT_thread_attr attr);
int ABT_info_print_task(FILE* fp, ABT_task task);
int ABT_info_print_thread_stack(FILE* fp, ABT_thread thread);
int ABT_info_print_thread_stacks_in_pool(FILE* fp, ABT_pool pool);
int ABT_info_trigger_print_all_thread_stacks(FILE* fp, double timeout,
                                             void (*cb_func)(ABT_bool, void*), void* arg);

/* Events of ULTs, for tools. */
int ABT_tool_register_thread_callback(ABT_tool_thread_callback_fn cb_func, uint64_t event_mask,
                                      void* user_arg);
int ABT_tool_query_thread(ABT_tool_context context, uint64_t event, ABT_tool_query_kind query_kind,
                          void* val);

#ifdef __cplusplus
}
#endif

#endif
