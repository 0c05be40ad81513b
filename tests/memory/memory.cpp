#include "memory/memory.hpp"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace amalgam::memory {
namespace {

std::atomic<std::uint64_t> count{0};
thread_local bool may_fail = false;
thread_local std::uint64_t left = 0;
thread_local std::uint64_t to_fail = 0;
thread_local bool has_struck = false;

bool strikes() noexcept {
    if (!may_fail || to_fail == 0) return false;
    if (left > 1) {
        --left;
        return false;
    }
    --to_fail;
    has_struck = true;
    return true;
}

void* take(std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) noexcept {
    count.fetch_add(1, std::memory_order_relaxed);
    if (strikes()) return nullptr;
    if (bytes == 0) bytes = 1;
    return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

void* take_or_throw(std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) {
    if (void* memory = take(bytes, alignment)) return memory;
    throw std::bad_alloc();
}

}  // namespace

std::uint64_t allocations() noexcept {
    return count.load(std::memory_order_relaxed);
}

failing::failing(std::uint64_t n, std::uint64_t how_many) noexcept {
    left = n;
    to_fail = n != 0 ? how_many : 0;
    has_struck = false;
    may_fail = true;
}

failing::~failing() {
    may_fail = false;
}

bool failing::struck() noexcept {
    return has_struck;
}

spared::spared() noexcept : before_(may_fail) {
    may_fail = false;
}

spared::~spared() {
    may_fail = before_;
}

}  // namespace amalgam::memory

// All forms, since sanitizers replace each.
void* operator new(std::size_t n) {
    return amalgam::memory::take_or_throw(n);
}
void* operator new(std::size_t n, std::align_val_t a) {
    return amalgam::memory::take_or_throw(n, static_cast<std::size_t>(a));
}
void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
    return amalgam::memory::take(n);
}
void* operator new(std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
    return amalgam::memory::take(n, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t n) {
    return amalgam::memory::take_or_throw(n);
}
void* operator new[](std::size_t n, std::align_val_t a) {
    return amalgam::memory::take_or_throw(n, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept {
    return amalgam::memory::take(n);
}
void* operator new[](std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
    return amalgam::memory::take(n, static_cast<std::size_t>(a));
}
void operator delete(void* p) noexcept {
    std::free(p);
}
void operator delete[](void* p) noexcept {
    std::free(p);
}
void operator delete(void* p, std::size_t) noexcept {
    std::free(p);
}
void operator delete[](void* p, std::size_t) noexcept {
    std::free(p);
}
void operator delete(void* p, std::align_val_t) noexcept {
    std::free(p);
}
void operator delete[](void* p, std::align_val_t) noexcept {
    std::free(p);
}
void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
    std::free(p);
}
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept {
    std::free(p);
}
