#pragma once

#include <cstddef>
#include <new>

#include "tasks/stacks/recycler.hpp"
#include "tasks/stacks/sanitizer.hpp"

namespace amalgam::detail {

/// One thread's free blocks, in size classes of 64 bytes up to 1.25 KiB, enough for a call with its
/// future.
class block_cache {
public:
    /// The calling thread's cache; null while the thread ends.
    static block_cache* of_thread() noexcept;
    /// The same, inlined, for functions that are not, and do not switch; null also before its first
    /// use.
    static block_cache* of_thread_in_line() noexcept;

    /// `from`: the calling thread's cache. Failure: throws std::bad_alloc.
    static void* allocate(std::size_t bytes, block_cache* from) {
        const std::size_t of = class_of(bytes);
        if (pooled(of, from)) {
            if (free_node* node = from->stocks_[of].pop(depots[of])) return node;
        }
        // Rounded up even for an ending thread without a cache: another thread may cache the block.
        if (!sanitized && of < classes) bytes = (of + 1) * granule;
        return ::operator new(bytes);
    }
    /// Makes no call. Null: use allocate().
    static void* allocate_quickly(std::size_t bytes, block_cache* from) noexcept {
        const std::size_t of = class_of(bytes);
        return pooled(of, from) ? from->stocks_[of].pop_quickly() : nullptr;
    }
    static void free(void* memory, std::size_t bytes, block_cache* to) noexcept {
        const std::size_t of = class_of(bytes);
        if (!pooled(of, to)) return ::operator delete(memory);
        to->stocks_[of].push(*::new (memory) free_node{nullptr}, depots[of]);
    }
    void give_all() noexcept;
    /// See forks.hpp.
    template <typename What>
    static void for_each_lock(What what) {
        for (block_depot& each : depots)
            what(each.lock());
    }

private:
    static constexpr std::size_t granule = 64;
    static constexpr std::size_t classes = 20;

    static std::size_t class_of(std::size_t bytes) noexcept { return (bytes - 1) / granule; }
    // Sanitized builds see every allocation and release.
    static bool pooled(std::size_t of, const block_cache* cache) noexcept {
        return !sanitized && of < classes && cache != nullptr;
    }
    static void release(free_node& node) noexcept { ::operator delete(static_cast<void*>(&node)); }

    struct block_depot : depot {
        constexpr block_depot() noexcept : depot(release) {}
    };
    static block_depot depots[classes];

    free_stock stocks_[classes];
};

}  // namespace amalgam::detail
