#pragma once
// What FastFlow programs may set before they include a header, and the marks that travel between
// nodes.

#include <cassert>
#include <climits>
#include <cstddef>
#include <cstdint>

#include <sys/types.h>

#if !defined(DEFAULT_BUFFER_CAPACITY)
#define DEFAULT_BUFFER_CAPACITY 2048
#endif
#if !defined(MAX_NUM_THREADS)
#define MAX_NUM_THREADS 512
#endif
#if !defined(DEF_MAX_NUM_WORKERS)
#define DEF_MAX_NUM_WORKERS (MAX_NUM_THREADS - 2)
#endif
#if !defined(DEF_OFARM_ONDEMAND_MEMORY)
#define DEF_OFARM_ONDEMAND_MEMORY 10000
#endif
#if defined(FF_BOUNDED_BUFFER)
#define FF_FIXED_SIZE true
#else
#define FF_FIXED_SIZE false
#endif
#if defined(BLOCKING_MODE)
#define FF_RUNTIME_MODE true
#else
#define FF_RUNTIME_MODE false
#endif
#if !defined(CACHE_LINE_SIZE)
#define CACHE_LINE_SIZE 64
#endif
#define FF_IGNORE_UNUSED(x) static_cast<void>(x)

namespace ff {

// Marks have FastFlow's values: they are compared with items, and no item is at such an address.
inline void* const FF_EOS = reinterpret_cast<void*>(ULLONG_MAX);
inline void* const FF_EOS_NOFREEZE = reinterpret_cast<void*>(ULLONG_MAX - 1);
inline void* const FF_EOSW = reinterpret_cast<void*>(ULLONG_MAX - 2);
inline void* const FF_GO_ON = reinterpret_cast<void*>(ULLONG_MAX - 3);
inline void* const FF_GO_OUT = reinterpret_cast<void*>(ULLONG_MAX - 4);
inline void* const FF_FLUSH = reinterpret_cast<void*>(ULLONG_MAX - 5);
inline void* const FF_BLK = reinterpret_cast<void*>(ULLONG_MAX - 6);
inline void* const FF_NBLK = reinterpret_cast<void*>(ULLONG_MAX - 7);
inline void* const FF_TAG_MIN = reinterpret_cast<void*>(ULLONG_MAX - 10);

}  // namespace ff
