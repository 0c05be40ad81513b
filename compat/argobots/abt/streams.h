#ifndef AMALGAM_ABT_STREAMS_H
#define AMALGAM_ABT_STREAMS_H

/* Streams and schedulers. Functions return ABT_SUCCESS or an error number. */

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Life of the library. ABT_init() makes the calling thread the primary stream's main ULT;
 * ABT_init() and ABT_finalize() nest. ABT_finalize() first runs what the primary stream's pools
 * still hold, and waits for their ULTs that wait: one that nothing resumes makes it wait for ever.
 */
int ABT_init(int argc, char** argv);
int ABT_finalize(void);
int ABT_initialized(void);

/* Execution streams, each an OS thread. Join, cancel and revive from any thread or ULT but one of
 * the stream itself; joining waits for its pools to be empty and for their ULTs that wait. An idle
 * stream sleeps. */
int ABT_xstream_create(ABT_sched sched, ABT_xstream* newxstream);
int ABT_xstream_create_basic(ABT_sched_predef predef, int num_pools, ABT_pool* pools,
                             ABT_sched_config config, ABT_xstream* newxstream);
int ABT_xstream_create_with_rank(ABT_sched sched, int rank, ABT_xstream* newxstream);
int ABT_xstream_free(ABT_xstream* xstream);
int ABT_xstream_join(ABT_xstream xstream);
int ABT_xstream_revive(ABT_xstream xstream);
int ABT_xstream_exit(void);
int ABT_xstream_cancel(ABT_xstream xstream);
int ABT_xstream_self(ABT_xstream* xstream);
int ABT_xstream_self_rank(int* rank);
int ABT_xstream_set_rank(ABT_xstream xstream, int rank);
int ABT_xstream_get_rank(ABT_xstream xstream, int* rank);
int ABT_xstream_set_main_sched(ABT_xstream xstream, ABT_sched sched);
int ABT_xstream_set_main_sched_basic(ABT_xstream xstream, ABT_sched_predef predef, int num_pools,
                                     ABT_pool* pools);
int ABT_xstream_get_main_sched(ABT_xstream xstream, ABT_sched* sched);
int ABT_xstream_get_main_pools(ABT_xstream xstream, int max_pools, ABT_pool* pools);
int ABT_xstream_get_state(ABT_xstream xstream, ABT_xstream_state* state);
int ABT_xstream_equal(ABT_xstream xstream1, ABT_xstream xstream2, ABT_bool* result);
int ABT_xstream_get_num(int* num_xstreams);
int ABT_xstream_is_primary(ABT_xstream xstream, ABT_bool* is_primary);
int ABT_xstream_run_unit(ABT_unit unit, ABT_pool pool);
int ABT_xstream_check_events(ABT_sched sched);
int ABT_xstream_set_cpubind(ABT_xstream xstream, int cpuid);
int ABT_xstream_get_cpubind(ABT_xstream xstream, int* cpuid);
int ABT_xstream_set_affinity(ABT_xstream xstream, int num_cpuids, int* cpuids);
int ABT_xstream_get_affinity(ABT_xstream xstream, int max_cpuids, int* cpuids, int* num_cpuids);

/* A barrier of streams. Here the calling ULT parks, and the stream runs others meanwhile. */
int ABT_xstream_barrier_create(uint32_t num_waiters, ABT_xstream_barrier* newbarrier);
int ABT_xstream_barrier_free(ABT_xstream_barrier* barrier);
int ABT_xstream_barrier_wait(ABT_xstream_barrier barrier);

/* Schedulers. A predefined one as a stream's main scheduler costs no switches of its own. A user's
 * run function is a ULT, which hands over to what it runs and gets control back. */
int ABT_sched_create(ABT_sched_def* def, int num_pools, ABT_pool* pools, ABT_sched_config config,
                     ABT_sched* newsched);
int ABT_sched_create_basic(ABT_sched_predef predef, int num_pools, ABT_pool* pools,
                           ABT_sched_config config, ABT_sched* newsched);
int ABT_sched_free(ABT_sched* sched);
int ABT_sched_set_data(ABT_sched sched, void* data);
int ABT_sched_get_data(ABT_sched sched, void** data);
int ABT_sched_get_num_pools(ABT_sched sched, int* num_pools);
int ABT_sched_get_pools(ABT_sched sched, int max_pools, int idx, ABT_pool* pools);
int ABT_sched_get_size(ABT_sched sched, size_t* size);
int ABT_sched_get_total_size(ABT_sched sched, size_t* size);
int ABT_sched_finish(ABT_sched sched);
int ABT_sched_exit(ABT_sched sched);
int ABT_sched_has_to_stop(ABT_sched sched, ABT_bool* stop);

/* Settings of a scheduler, by index. Owner: the caller. */
int ABT_sched_config_create(ABT_sched_config* config, ...);
int ABT_sched_config_read(ABT_sched_config config, int num_vars, ...);
int ABT_sched_config_free(ABT_sched_config* config);
int ABT_sched_config_set(ABT_sched_config config, int idx, ABT_sched_config_type type,
                         const void* val);
int ABT_sched_config_get(ABT_sched_config config, int idx, ABT_sched_config_type* p_type,
                         void* val);

#ifdef __cplusplus
}
#endif

#endif
