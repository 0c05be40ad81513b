#pragma once
// System headers that FastFlow's programs expect to be there.

#include <cassert>
#include <cerrno>
#include <climits>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#if defined(__x86_64__)
#define PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define PAUSE() __asm__ volatile("yield")
#else
#define PAUSE() static_cast<void>(0)
#endif
#define INLINE inline
#define FF_MEM_ALIGN(declared, bytes) alignas(bytes) declared

/// For memory of posix_memalign().
inline void posix_memalign_free(void* memory) {
    std::free(memory);
}
