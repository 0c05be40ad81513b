#ifndef AMALGAM_ABT_H
#define AMALGAM_ABT_H

/* Argobots' C interface (1.2) on Amalgam's tasks, so that its programs compile unchanged. What
 * differs is in docs/guide/argobots.md.
 *
 * Threads: any function from any ULT or thread, unless it says otherwise. Nothing aborts on a null
 * handle; a handle that was freed must not be used. */

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/time.h>

#include "abt/info.h"
#include "abt/pools.h"
#include "abt/streams.h"
#include "abt/sync.h"
#include "abt/threads.h"
#include "abt/types.h"

#define ABT_VERSION "1.2"
#define ABT_NUMVERSION 10200300
#define ABT_RELEASE_TYPE_ALPHA 0
#define ABT_RELEASE_TYPE_BETA 1
#define ABT_RELEASE_TYPE_RC 2
#define ABT_RELEASE_TYPE_PATCH 3
#define ABT_CALC_VERSION(MAJOR, MINOR, REVISION, TYPE, PATCH) \
    (10000000 * (MAJOR) + 100000 * (MINOR) + 1000 * (REVISION) + 100 * (TYPE) + (PATCH))

#endif
