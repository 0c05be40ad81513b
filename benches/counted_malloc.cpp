// Replaces the C library's allocation functions in one program by counting ones. operator new ends
// here too, so every heap allocation is counted.
#include "counted_malloc.hpp"

#include <atomic>
#include <cerrno>
#include <cstddef>

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
}

namespace {
std::atomic<std::uint64_t> count{0};
void one_more() {
    count.fetch_add(1, std::memory_order_relaxed);
}
}  // namespace

namespace amalgam::bench {
std::uint64_t allocations() noexcept {
    return count.load(std::memory_order_relaxed);
}
}  // namespace amalgam::bench

extern "C" {
void* malloc(std::size_t bytes) {
    one_more();
    return __libc_malloc(bytes);
}
void* calloc(std::size_t n, std::size_t bytes) {
    one_more();
    return __libc_calloc(n, bytes);
}
void* realloc(void* old, std::size_t bytes) {
    one_more();
    return __libc_realloc(old, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
    one_more();
    return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
    return memalign(alignment, bytes);
}
int posix_memalign(void** into, std::size_t alignment, std::size_t bytes) {
    *into = memalign(alignment, bytes);
    return *into == nullptr ? ENOMEM : 0;
}
}
