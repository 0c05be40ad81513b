#ifndef AMALGAM_ABT_TYPES_H
#define AMALGAM_ABT_TYPES_H

/* Handles, constants and function types. The values are those of Argobots 1.2. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ABT_TRUE 1
#define ABT_FALSE 0
#define ABT_XSTREAM_ANY_RANK -1

#define ABT_SUCCESS 0
#define ABT_ERR_UNINITIALIZED 1
#define ABT_ERR_MEM 2
#define ABT_ERR_OTHER 3
#define ABT_ERR_INV_XSTREAM 4
#define ABT_ERR_INV_XSTREAM_RANK 5
#define ABT_ERR_INV_XSTREAM_BARRIER 6
#define ABT_ERR_INV_SCHED 7
#define ABT_ERR_INV_SCHED_KIND 8
#define ABT_ERR_INV_SCHED_PREDEF 9
#define ABT_ERR_INV_SCHED_TYPE 10
#define ABT_ERR_INV_SCHED_CONFIG 11
#define ABT_ERR_INV_POOL 12
#define ABT_ERR_INV_POOL_KIND 13
#define ABT_ERR_INV_POOL_ACCESS 14
#define ABT_ERR_INV_UNIT 15
#define ABT_ERR_INV_THREAD 16
#define ABT_ERR_INV_THREAD_ATTR 17
#define ABT_ERR_INV_TASK 18
#define ABT_ERR_INV_KEY 19
#define ABT_ERR_INV_MUTEX 20
#define ABT_ERR_INV_MUTEX_ATTR 21
#define ABT_ERR_INV_COND 22
#define ABT_ERR_INV_RWLOCK 23
#define ABT_ERR_INV_EVENTUAL 24
#define ABT_ERR_INV_FUTURE 25
#define ABT_ERR_INV_BARRIER 26
#define ABT_ERR_INV_TIMER 27
#define ABT_ERR_INV_QUERY_KIND 28
#define ABT_ERR_XSTREAM 29
#define ABT_ERR_XSTREAM_STATE 30
#define ABT_ERR_XSTREAM_BARRIER 31
#define ABT_ERR_SCHED 32
#define ABT_ERR_SCHED_CONFIG 33
#define ABT_ERR_POOL 34
#define ABT_ERR_UNIT 35
#define ABT_ERR_THREAD 36
#define ABT_ERR_TASK 37
#define ABT_ERR_KEY 38
#define ABT_ERR_MUTEX 39
#define ABT_ERR_MUTEX_LOCKED 40
#define ABT_ERR_COND 41
#define ABT_ERR_COND_TIMEDOUT 42
#define ABT_ERR_RWLOCK 43
#define ABT_ERR_EVENTUAL 44
#define ABT_ERR_FUTURE 45
#define ABT_ERR_BARRIER 46
#define ABT_ERR_TIMER 47
#define ABT_ERR_MIGRATION_TARGET 48
#define ABT_ERR_MIGRATION_NA 49
#define ABT_ERR_MISSING_JOIN 50
#define ABT_ERR_FEATURE_NA 51
#define ABT_ERR_INV_TOOL_CONTEXT 52
#define ABT_ERR_INV_ARG 53
#define ABT_ERR_SYS 54
#define ABT_ERR_CPUID 55
#define ABT_ERR_INV_POOL_CONFIG 56
#define ABT_ERR_INV_POOL_USER_DEF 57

typedef enum ABT_xstream_state {
    ABT_XSTREAM_STATE_RUNNING,
    ABT_XSTREAM_STATE_TERMINATED
} ABT_xstream_state;
typedef enum ABT_thread_state {
    ABT_THREAD_STATE_READY,
    ABT_THREAD_STATE_RUNNING,
    ABT_THREAD_STATE_BLOCKED,
    ABT_THREAD_STATE_TERMINATED
} ABT_thread_state;
typedef enum ABT_task_state {
    ABT_TASK_STATE_READY,
    ABT_TASK_STATE_RUNNING,
    ABT_TASK_STATE_TERMINATED
} ABT_task_state;
typedef enum ABT_sched_state {
    ABT_SCHED_STATE_READY,
    ABT_SCHED_STATE_RUNNING,
    ABT_SCHED_STATE_STOPPED,
    ABT_SCHED_STATE_TERMINATED
} ABT_sched_state;
typedef enum ABT_sched_predef {
    ABT_SCHED_DEFAULT,
    ABT_SCHED_BASIC,
    ABT_SCHED_PRIO,
    ABT_SCHED_RANDWS,
    ABT_SCHED_BASIC_WAIT
} ABT_sched_predef;
typedef enum ABT_sched_type { ABT_SCHED_TYPE_ULT, ABT_SCHED_TYPE_TASK } ABT_sched_type;
typedef enum ABT_pool_kind { ABT_POOL_FIFO, ABT_POOL_FIFO_WAIT, ABT_POOL_RANDWS } ABT_pool_kind;
typedef enum ABT_pool_access {
    ABT_POOL_ACCESS_PRIV,
    ABT_POOL_ACCESS_SPSC,
    ABT_POOL_ACCESS_MPSC,
    ABT_POOL_ACCESS_SPMC,
    ABT_POOL_ACCESS_MPMC
} ABT_pool_access;
typedef enum ABT_unit_type {
    ABT_UNIT_TYPE_THREAD,
    ABT_UNIT_TYPE_TASK,
    ABT_UNIT_TYPE_XSTREAM,
    ABT_UNIT_TYPE_EXT
} ABT_unit_type;
typedef enum ABT_info_query_kind {
    ABT_INFO_QUERY_KIND_ENABLED_DEBUG,
    ABT_INFO_QUERY_KIND_ENABLED_PRINT_ERRNO,
    ABT_INFO_QUERY_KIND_ENABLED_LOG,
    ABT_INFO_QUERY_KIND_ENABLED_VALGRIND,
    ABT_INFO_QUERY_KIND_ENABLED_CHECK_ERROR,
    ABT_INFO_QUERY_KIND_ENABLED_CHECK_POOL_PRODUCER,
    ABT_INFO_QUERY_KIND_ENABLED_CHECK_POOL_CONSUMER,
    ABT_INFO_QUERY_KIND_ENABLED_PRESERVE_FPU,
    ABT_INFO_QUERY_KIND_ENABLED_THREAD_CANCEL,
    ABT_INFO_QUERY_KIND_ENABLED_TASK_CANCEL,
    ABT_INFO_QUERY_KIND_ENABLED_MIGRATION,
    ABT_INFO_QUERY_KIND_ENABLED_STACKABLE_SCHED,
    ABT_INFO_QUERY_KIND_ENABLED_EXTERNAL_THREAD,
    ABT_INFO_QUERY_KIND_ENABLED_SCHED_SLEEP,
    ABT_INFO_QUERY_KIND_ENABLED_PRINT_CONFIG,
    ABT_INFO_QUERY_KIND_ENABLED_AFFINITY,
    ABT_INFO_QUERY_KIND_MAX_NUM_XSTREAMS,
    ABT_INFO_QUERY_KIND_DEFAULT_THREAD_STACKSIZE,
    ABT_INFO_QUERY_KIND_DEFAULT_SCHED_STACKSIZE,
    ABT_INFO_QUERY_KIND_DEFAULT_SCHED_EVENT_FREQ,
    ABT_INFO_QUERY_KIND_DEFAULT_SCHED_SLEEP_NSEC,
    ABT_INFO_QUERY_KIND_ENABLED_TOOL,
    ABT_INFO_QUERY_KIND_FCONTEXT,
    ABT_INFO_QUERY_KIND_DYNAMIC_PROMOTION,
    ABT_INFO_QUERY_KIND_ENABLED_STACK_UNWIND,
    ABT_INFO_QUERY_KIND_ENABLED_STACK_OVERFLOW_CHECK,
    ABT_INFO_QUERY_KIND_WAIT_POLICY,
    ABT_INFO_QUERY_KIND_ENABLED_LAZY_STACK_ALLOC
} ABT_info_query_kind;
typedef enum ABT_tool_query_kind {
    ABT_TOOL_QUERY_KIND_POOL,
    ABT_TOOL_QUERY_KIND_STACK_DEPTH,
    ABT_TOOL_QUERY_KIND_CALLER_TYPE,
    ABT_TOOL_QUERY_KIND_CALLER_HANDLE,
    ABT_TOOL_QUERY_KIND_SYNC_OBJECT_TYPE,
    ABT_TOOL_QUERY_KIND_SYNC_OBJECT_HANDLE
} ABT_tool_query_kind;
typedef enum ABT_exec_entity_type {
    ABT_EXEC_ENTITY_TYPE_EXT,
    ABT_EXEC_ENTITY_TYPE_THREAD
} ABT_exec_entity_type;
typedef enum ABT_sync_event_type {
    ABT_SYNC_EVENT_TYPE_UNKNOWN = 0,
    ABT_SYNC_EVENT_TYPE_USER,
    ABT_SYNC_EVENT_TYPE_OTHER,
    ABT_SYNC_EVENT_TYPE_XSTREAM_JOIN,
    ABT_SYNC_EVENT_TYPE_THREAD_JOIN,
    ABT_SYNC_EVENT_TYPE_MUTEX,
    ABT_SYNC_EVENT_TYPE_COND,
    ABT_SYNC_EVENT_TYPE_RWLOCK,
    ABT_SYNC_EVENT_TYPE_EVENTUAL,
    ABT_SYNC_EVENT_TYPE_FUTURE,
    ABT_SYNC_EVENT_TYPE_BARRIER
} ABT_sync_event_type;
typedef enum {
    ABT_SCHED_CONFIG_INT = 0,
    ABT_SCHED_CONFIG_DOUBLE = 1,
    ABT_SCHED_CONFIG_PTR = 2
} ABT_sched_config_type;
typedef enum {
    ABT_POOL_CONFIG_INT = 0,
    ABT_POOL_CONFIG_DOUBLE = 1,
    ABT_POOL_CONFIG_PTR = 2
} ABT_pool_config_type;

#define ABT_TOOL_EVENT_THREAD_NONE (0)
#define ABT_TOOL_EVENT_THREAD_CREATE (1 << 0)
#define ABT_TOOL_EVENT_THREAD_JOIN (1 << 1)
#define ABT_TOOL_EVENT_THREAD_FREE (1 << 2)
#define ABT_TOOL_EVENT_THREAD_REVIVE (1 << 3)
#define ABT_TOOL_EVENT_THREAD_RUN (1 << 4)
#define ABT_TOOL_EVENT_THREAD_FINISH (1 << 5)
#define ABT_TOOL_EVENT_THREAD_CANCEL (1 << 6)
#define ABT_TOOL_EVENT_THREAD_YIELD (1 << 7)
#define ABT_TOOL_EVENT_THREAD_SUSPEND (1 << 8)
#define ABT_TOOL_EVENT_THREAD_RESUME (1 << 9)
#define ABT_TOOL_EVENT_THREAD_ALL ((uint64_t)((1 << 12) - 1))

/* Handles. The null handle of each kind is the null pointer. */
typedef struct ABT_xstream_opaque* ABT_xstream;
typedef struct ABT_xstream_barrier_opaque* ABT_xstream_barrier;
typedef struct ABT_sched_opaque* ABT_sched;
typedef struct ABT_sched_config_opaque* ABT_sched_config;
typedef struct ABT_pool_opaque* ABT_pool;
typedef struct ABT_pool_config_opaque* ABT_pool_config;
typedef struct ABT_unit_opaque* ABT_unit;
typedef struct ABT_thread_opaque* ABT_thread;
typedef struct ABT_thread_attr_opaque* ABT_thread_attr;
typedef struct ABT_key_opaque* ABT_key;
typedef struct ABT_mutex_opaque* ABT_mutex;
typedef struct ABT_mutex_attr_opaque* ABT_mutex_attr;
typedef struct ABT_cond_opaque* ABT_cond;
typedef struct ABT_rwlock_opaque* ABT_rwlock;
typedef struct ABT_eventual_opaque* ABT_eventual;
typedef struct ABT_future_opaque* ABT_future;
typedef struct ABT_barrier_opaque* ABT_barrier;
typedef struct ABT_timer_opaque* ABT_timer;
typedef struct ABT_tool_context_opaque* ABT_tool_context;
typedef struct ABT_thread_opaque* ABT_task;
typedef struct ABT_pool_def* ABT_pool_user_def;

#define ABT_XSTREAM_NULL ((ABT_xstream)NULL)
#define ABT_XSTREAM_BARRIER_NULL ((ABT_xstream_barrier)NULL)
#define ABT_SCHED_NULL ((ABT_sched)NULL)
#define ABT_SCHED_CONFIG_NULL ((ABT_sched_config)NULL)
#define ABT_POOL_NULL ((ABT_pool)NULL)
#define ABT_POOL_CONFIG_NULL ((ABT_pool_config)NULL)
#define ABT_UNIT_NULL ((ABT_unit)NULL)
#define ABT_THREAD_NULL ((ABT_thread)NULL)
#define ABT_THREAD_ATTR_NULL ((ABT_thread_attr)NULL)
#define ABT_KEY_NULL ((ABT_key)NULL)
#define ABT_MUTEX_NULL ((ABT_mutex)NULL)
#define ABT_MUTEX_ATTR_NULL ((ABT_mutex_attr)NULL)
#define ABT_COND_NULL ((ABT_cond)NULL)
#define ABT_RWLOCK_NULL ((ABT_rwlock)NULL)
#define ABT_EVENTUAL_NULL ((ABT_eventual)NULL)
#define ABT_FUTURE_NULL ((ABT_future)NULL)
#define ABT_BARRIER_NULL ((ABT_barrier)NULL)
#define ABT_TIMER_NULL ((ABT_timer)NULL)
#define ABT_TOOL_CONTEXT_NULL ((ABT_tool_context)NULL)
#define ABT_TASK_NULL ((ABT_task)NULL)
#define ABT_POOL_USER_DEF_NULL ((ABT_pool_user_def)NULL)

typedef int ABT_bool;
typedef uint64_t ABT_unit_id;
typedef ABT_unit_id ABT_thread_id;

/* Memory of objects that need no create function, for example
 *     static ABT_mutex_memory lock = ABT_MUTEX_INITIALIZER;
 *     ABT_mutex_lock(ABT_MUTEX_MEMORY_GET_HANDLE(&lock)); */
typedef struct {
    uint64_t words[16];
} ABT_mutex_memory;
typedef struct {
    uint64_t words[16];
} ABT_cond_memory;
typedef struct {
    uint64_t words[16];
} ABT_eventual_memory;
#define ABT_MUTEX_INITIALIZER                              \
    {                                                      \
        { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 } \
    }
#define ABT_RECURSIVE_MUTEX_INITIALIZER                    \
    {                                                      \
        { 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 } \
    }
#define ABT_COND_INITIALIZER                               \
    {                                                      \
        { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 } \
    }
#define ABT_EVENTUAL_INITIALIZER                           \
    {                                                      \
        { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 } \
    }
#define ABT_MUTEX_MEMORY_GET_HANDLE(memory) ((ABT_mutex)(memory))
#define ABT_COND_MEMORY_GET_HANDLE(memory) ((ABT_cond)(memory))
#define ABT_EVENTUAL_MEMORY_GET_HANDLE(memory) ((ABT_eventual)(memory))

/* A scheduler of the user. `run` is required: it pops units from its pools and runs them, calls
 * ABT_xstream_check_events() now and then, and returns when ABT_sched_has_to_stop() says so. */
typedef int (*ABT_sched_init_fn)(ABT_sched, ABT_sched_config);
typedef void (*ABT_sched_run_fn)(ABT_sched);
typedef int (*ABT_sched_free_fn)(ABT_sched);
typedef ABT_pool (*ABT_sched_get_migr_pool_fn)(ABT_sched);
typedef struct {
    ABT_sched_type type; /* ignored */
    ABT_sched_init_fn init;
    ABT_sched_run_fn run;
    ABT_sched_free_fn free;
    ABT_sched_get_migr_pool_fn get_migr_pool; /* null: the first pool */
} ABT_sched_def;
typedef struct {
    int idx;
    ABT_sched_config_type type;
} ABT_sched_config_var;
extern ABT_sched_config_var ABT_sched_config_var_end;
extern ABT_sched_config_var ABT_sched_basic_freq;
extern ABT_sched_config_var ABT_sched_config_access;
extern ABT_sched_config_var ABT_sched_config_automatic;

typedef struct {
    int key;
    ABT_pool_config_type type;
} ABT_pool_config_var;
extern const ABT_pool_config_var ABT_pool_config_automatic;

/* Why a unit is pushed or popped, for a user's pool. */
typedef uint64_t ABT_pool_context;
#define ABT_POOL_CONTEXT_PRIO_DEFAULT_PRIO ((ABT_pool_context)0x0)
#define ABT_POOL_CONTEXT_PRIO_HIGH_PRIO ((ABT_pool_context)0x1)
#define ABT_POOL_CONTEXT_PRIO_LOW_PRIO ((ABT_pool_context)0x2)
#define ABT_POOL_CONTEXT_OWNER_DEFAULT ((ABT_pool_context)0x0)
#define ABT_POOL_CONTEXT_OWNER_PRIMARY ((ABT_pool_context)0x100)
#define ABT_POOL_CONTEXT_OWNER_SECONDARY ((ABT_pool_context)0x200)
#define ABT_POOL_CONTEXT_OP_POOL_OTHER ((ABT_pool_context)0x0)
#define ABT_POOL_CONTEXT_OP_THREAD_CREATE ((ABT_pool_context)0x1000)
#define ABT_POOL_CONTEXT_OP_THREAD_CREATE_TO ((ABT_pool_context)0x2000)
#define ABT_POOL_CONTEXT_OP_THREAD_REVIVE ((ABT_pool_context)0x4000)
#define ABT_POOL_CONTEXT_OP_THREAD_REVIVE_TO ((ABT_pool_context)0x8000)
#define ABT_POOL_CONTEXT_OP_THREAD_YIELD ((ABT_pool_context)0x10000)
#define ABT_POOL_CONTEXT_OP_THREAD_YIELD_TO ((ABT_pool_context)0x20000)
#define ABT_POOL_CONTEXT_OP_THREAD_RESUME_YIELD_TO ((ABT_pool_context)0x40000)
#define ABT_POOL_CONTEXT_OP_THREAD_YIELD_LOOP ((ABT_pool_context)0x80000)
#define ABT_POOL_CONTEXT_OP_THREAD_RESUME ((ABT_pool_context)0x100000)
#define ABT_POOL_CONTEXT_OP_THREAD_MIGRATE ((ABT_pool_context)0x200000)

/* The functions of a user's pool, as ABT_pool_user_def_create() takes them. */
typedef ABT_unit (*ABT_pool_user_create_unit_fn)(ABT_pool, ABT_thread);
typedef void (*ABT_pool_user_free_unit_fn)(ABT_pool, ABT_unit);
typedef ABT_bool (*ABT_pool_user_is_empty_fn)(ABT_pool);
typedef ABT_thread (*ABT_pool_user_pop_fn)(ABT_pool, ABT_pool_context);
typedef void (*ABT_pool_user_push_fn)(ABT_pool, ABT_unit, ABT_pool_context);
typedef int (*ABT_pool_user_init_fn)(ABT_pool, ABT_pool_config);
typedef void (*ABT_pool_user_free_fn)(ABT_pool);
typedef size_t (*ABT_pool_user_get_size_fn)(ABT_pool);
typedef ABT_thread (*ABT_pool_user_pop_wait_fn)(ABT_pool, double, ABT_pool_context);
typedef void (*ABT_pool_user_pop_many_fn)(ABT_pool, ABT_thread*, size_t, size_t*, ABT_pool_context);
typedef void (*ABT_pool_user_push_many_fn)(ABT_pool, const ABT_unit*, size_t, ABT_pool_context);
typedef void (*ABT_pool_user_print_all_fn)(ABT_pool, void* arg, void (*)(void*, ABT_thread));

/* The same in the old form, a struct ABT_pool_def filled in by the user. */
typedef ABT_unit_type (*ABT_unit_get_type_fn)(ABT_unit);
typedef ABT_thread (*ABT_unit_get_thread_fn)(ABT_unit);
typedef ABT_task (*ABT_unit_get_task_fn)(ABT_unit);
typedef ABT_bool (*ABT_unit_is_in_pool_fn)(ABT_unit);
typedef ABT_unit (*ABT_unit_create_from_thread_fn)(ABT_thread);
typedef ABT_unit (*ABT_unit_create_from_task_fn)(ABT_task);
typedef void (*ABT_unit_free_fn)(ABT_unit*);
typedef int (*ABT_pool_init_fn)(ABT_pool, ABT_pool_config);
typedef size_t (*ABT_pool_get_size_fn)(ABT_pool);
typedef void (*ABT_pool_push_fn)(ABT_pool, ABT_unit);
typedef ABT_unit (*ABT_pool_pop_fn)(ABT_pool);
typedef ABT_unit (*ABT_pool_pop_wait_fn)(ABT_pool, double);
typedef ABT_unit (*ABT_pool_pop_timedwait_fn)(ABT_pool, double);
typedef int (*ABT_pool_remove_fn)(ABT_pool, ABT_unit);
typedef int (*ABT_pool_free_fn)(ABT_pool);
typedef int (*ABT_pool_print_all_fn)(ABT_pool, void* arg, void (*)(void*, ABT_unit));
struct ABT_pool_def {
    ABT_pool_access access;
    ABT_unit_get_type_fn u_get_type;     /* unused */
    ABT_unit_get_thread_fn u_get_thread; /* unused */
    ABT_unit_get_task_fn u_get_task;     /* unused */
    ABT_unit_is_in_pool_fn u_is_in_pool;
    ABT_unit_create_from_thread_fn u_create_from_thread;
    ABT_unit_create_from_task_fn u_create_from_task; /* unused */
    ABT_unit_free_fn u_free;
    ABT_pool_init_fn p_init;
    ABT_pool_get_size_fn p_get_size;
    ABT_pool_push_fn p_push;
    ABT_pool_pop_fn p_pop;
    ABT_pool_pop_timedwait_fn p_pop_timedwait;
    ABT_pool_remove_fn p_remove;
    ABT_pool_free_fn p_free;
    ABT_pool_print_all_fn p_print_all;
};
typedef struct ABT_pool_def ABT_pool_def;

typedef void (*ABT_tool_thread_callback_fn)(ABT_thread, ABT_xstream, uint64_t event,
                                            ABT_tool_context context, void* user_arg);
typedef void (*ABT_tool_task_callback_fn)(ABT_task, ABT_xstream, uint64_t event,
                                          ABT_tool_context context, void* user_arg);

#ifdef __cplusplus
}
#endif

#endif
