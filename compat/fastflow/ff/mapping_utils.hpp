#pragma once

#include <string>

#include <ff/config.hpp>
#include <ff/platforms/platform.h>

/// FastFlow's questions about the machine. Answers are of the processors this process may use.
/// Failure: -1 where the system gives no answer. Threads: any.

ssize_t ff_numCores();      ///< Processors.
ssize_t ff_realNumCores();  ///< Cores, each counted once however many processors it has.
ssize_t ff_numSockets();
unsigned long ff_getCpuFreq();  ///< Hz; 0 if unknown.
ssize_t ff_getMyCore();
size_t ff_getThreadID();
/// Pins the calling thread; 0 if done.
ssize_t ff_mapThreadToCpu(int cpu, int priority = 0);
ssize_t ff_setPriority(ssize_t priority = 0);
static inline ssize_t ff_getMyCpu() {
    return ff_getMyCore();
}
static inline size_t cache_line_size() {
    const long bytes = sysconf(_SC_LEVEL1_DCACHE_LINESIZE);
    return bytes > 0 ? static_cast<size_t>(bytes) : CACHE_LINE_SIZE;
}
static inline ssize_t ff_numPU() {
    return ff_numCores();
}
