/* A tree of ULTs on two streams that adds numbers up, in C. */
#include <abt.h>
#include <stdio.h>
#include <stdlib.h>

static ABT_pool pools[2];
static ABT_mutex_memory lock = ABT_MUTEX_INITIALIZER;
static int leaves = 0;

typedef struct {
    int depth;
    long sum;
} branch;

static void check(int error, const char* what) {
    if (error == ABT_SUCCESS) return;
    fprintf(stderr, "c_program: %s returned %d\n", what, error);
    exit(1);
}

static void grow(void* arg) {
    branch* const self = (branch*)arg;
    branch below[2];
    ABT_thread children[2];
    int i;
    if (self->depth == 0) {
        const ABT_mutex mutex = ABT_MUTEX_MEMORY_GET_HANDLE(&lock);
        check(ABT_mutex_lock(mutex), "ABT_mutex_lock");
        ++leaves;
        check(ABT_mutex_unlock(mutex), "ABT_mutex_unlock");
        self->sum = 1;
        return;
    }
    for (i = 0; i < 2; ++i) {
        below[i].depth = self->depth - 1;
        below[i].sum = 0;
        check(ABT_thread_create(pools[i], grow, &below[i], ABT_THREAD_ATTR_NULL, &children[i]),
              "ABT_thread_create");
    }
    for (i = 0; i < 2; ++i)
        check(ABT_thread_free(&children[i]), "ABT_thread_free");
    self->sum = below[0].sum + below[1].sum;
}

int main(int argc, char** argv) {
    ABT_xstream streams[2];
    branch root = {10, 0};
    int i;
    check(ABT_init(argc, argv), "ABT_init");
    check(ABT_self_get_xstream(&streams[0]), "ABT_self_get_xstream");
    check(ABT_xstream_create(ABT_SCHED_NULL, &streams[1]), "ABT_xstream_create");
    for (i = 0; i < 2; ++i)
        check(ABT_xstream_get_main_pools(streams[i], 1, &pools[i]), "ABT_xstream_get_main_pools");
    grow(&root);
    check(ABT_xstream_free(&streams[1]), "ABT_xstream_free");
    check(ABT_finalize(), "ABT_finalize");
    printf("%ld leaves, counted %d\n", root.sum, leaves);
    return root.sum == 1024 && leaves == 1024 ? 0 : 1;
}
