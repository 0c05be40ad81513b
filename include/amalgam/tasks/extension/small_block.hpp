#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <utility>

namespace amalgam::detail {

/// Memory from a cache of the calling thread, aligned as any object. Throws std::bad_alloc.
/// Cost: no call of malloc in steady state, up to some 1 KiB.
void* allocate_block(std::size_t bytes);
void free_block(void* memory, std::size_t bytes) noexcept;

/// Base of objects that are allocated so.
struct in_small_block {
    static void* operator new(std::size_t bytes) { return allocate_block(bytes); }
    static void operator delete(void* memory, std::size_t bytes) noexcept {
        free_block(memory, bytes);
    }
};

/// The same for containers.
template <typename T>
struct small_block_allocator {
    static_assert(alignof(T) <= alignof(std::max_align_t));
    using value_type = T;

    small_block_allocator() noexcept = default;
    template <typename Other>
    small_block_allocator(const small_block_allocator<Other>&) noexcept {}

    T* allocate(std::size_t count) {
        if (count > std::size_t(-1) / sizeof(T)) throw std::bad_alloc();
        return static_cast<T*>(allocate_block(count * sizeof(T)));
    }
    void deallocate(T* memory, std::size_t count) noexcept {
        free_block(memory, count * sizeof(T));
    }
    bool operator==(const small_block_allocator&) const noexcept { return true; }
};

/// std::make_shared() in such memory.
template <typename T, typename... Arguments>
std::shared_ptr<T> make_small(Arguments&&... arguments) {
    return std::allocate_shared<T>(small_block_allocator<T>(),
                                   std::forward<Arguments>(arguments)...);
}

}  // namespace amalgam::detail
