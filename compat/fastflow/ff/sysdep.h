#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>

#include <ff/platforms/platform.h>

/// What was written before is seen before what is written after.
#define WMB() std::atomic_thread_fence(std::memory_order_release)

/// Writes `value`, and returns what was there.
static inline int xchg(volatile int* where, int value) {
    return __atomic_exchange_n(where, value, __ATOMIC_SEQ_CST);
}
/// For freeAlignedMemory(). `alignment`: a power of two, at least 8. Null: there is no memory.
static inline void* getAlignedMemory(std::size_t alignment, std::size_t bytes) {
    void* memory = nullptr;
    return posix_memalign(&memory, alignment, bytes) == 0 ? memory : nullptr;
}
static inline void freeAlignedMemory(void* memory) {
    std::free(memory);
}
