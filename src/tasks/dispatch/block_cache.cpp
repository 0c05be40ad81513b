// Small recycled blocks for the states of futures and for tasklets.

#include "tasks/dispatch/block_cache.hpp"

#include <amalgam/tasks/detail/future_state.hpp>

#include "tasks/dispatch/thread_store.hpp"

namespace amalgam::detail {

constinit block_cache::block_depot block_cache::depots[classes];

void block_cache::give_all() noexcept {
    for (std::size_t i = 0; i < classes; ++i)
        stocks_[i].give_all(depots[i]);
}

block_cache* block_cache::of_thread() noexcept {
    thread_store* const own = thread_store::own::get();
    return own == nullptr ? nullptr : &own->blocks;
}

[[gnu::always_inline]] inline block_cache* block_cache::of_thread_in_line() noexcept {
    thread_store* const own = thread_store::own::present_in_line();
    return own == nullptr ? nullptr : &own->blocks;
}

// Rare paths are separate and tail-called, so that common ones save no registers.

[[gnu::noinline]] static void* allocate_slowly(std::size_t bytes) {
    return block_cache::allocate(bytes, block_cache::of_thread());
}

[[gnu::noinline]] void* allocate_block(std::size_t bytes) {
    if (void* const kept = block_cache::allocate_quickly(bytes, block_cache::of_thread_in_line()))
        return kept;
    return allocate_slowly(bytes);
}

[[gnu::noinline]] static void free_slowly(void* memory, std::size_t bytes) noexcept {
    block_cache::free(memory, bytes, block_cache::of_thread());
}

[[gnu::noinline]] void free_block(void* memory, std::size_t bytes) noexcept {
    block_cache* const own = block_cache::of_thread_in_line();
    if (own == nullptr) return free_slowly(memory, bytes);
    block_cache::free(memory, bytes, own);
}

}  // namespace amalgam::detail
