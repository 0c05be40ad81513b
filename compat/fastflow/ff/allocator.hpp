#pragma once

#include <cstdlib>
#include <iosfwd>

#include <ff/config.hpp>
#include <ff/platforms/platform.h>
#include <ff/svector.hpp>
#include <ff/utils.hpp>

namespace ff {

enum { N_SLABBUFFER = 9 };

/// FastFlow's allocator as a name for the system's, whose caches per thread came since.
///
/// Threads: any, without registration.
class ff_allocator {
public:
    explicit ff_allocator(size_t = 0, int = 0) {}
    virtual ~ff_allocator() = default;

    int init(const int* = nullptr, bool = true) { return 0; }
    /// Which of N_SLABBUFFER classes of sizes, from 32 bytes in powers of two; -1: beyond the last.
    static int getslabs(size_t size) {
        int slab = 0;
        for (size_t bytes = 32; bytes < size; bytes *= 2)
            ++slab;
        return slab < N_SLABBUFFER ? slab : -1;
    }
    int registerAllocator() { return 0; }
    int register4free() { return 0; }
    void deregisterAllocator(bool = true) {}
    void deregister4free() {}

    void* malloc(size_t bytes) { return ::malloc(bytes); }
    void* realloc(void* memory, size_t bytes) { return ::realloc(memory, bytes); }
    void* growsup(void* memory, size_t bytes) { return ::realloc(memory, bytes); }
    int posix_memalign(void** memory, size_t alignment, size_t bytes) {
        return ::posix_memalign(memory, alignment, bytes);
    }
    bool free(void* memory) {
        ::free(memory);
        return true;
    }
    size_t allocatedsize() const { return 0; }
    void printstats(std::ostream&) {}
};

/// The one of the process.
class FFAllocator : public ff_allocator {
public:
    static FFAllocator* instance() {
        static FFAllocator one;
        return &one;
    }
    static FFAllocator* getInstance() { return instance(); }
    ff_allocator* newAllocator(size_t = 0, int* = nullptr, bool = false) {
        return new ff_allocator;
    }
    void deleteAllocator(ff_allocator* allocator, bool = false) { delete allocator; }
    void deleteAllocator() {}  ///< The calling thread's.
};

inline void* ff_malloc(size_t bytes) {
    return ::malloc(bytes);
}
inline void ff_free(void* memory) {
    ::free(memory);
}
inline void* ff_realloc(void* memory, size_t bytes) {
    return ::realloc(memory, bytes);
}
inline int ff_posix_memalign(void** memory, size_t alignment, size_t bytes) {
    return ::posix_memalign(memory, alignment, bytes);
}

}  // namespace ff
