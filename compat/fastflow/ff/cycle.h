#pragma once

#include <ff/platforms/platform.h>

/// The processor's cycle counter; elsewhere nanoseconds of the monotonic clock.
using ticks = unsigned long;

static inline ticks getticks() {
#if defined(__x86_64__)
    unsigned low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (static_cast<ticks>(high) << 32) | low;
#else
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<ticks>(now.tv_sec) * 1000000000UL + static_cast<ticks>(now.tv_nsec);
#endif
}
