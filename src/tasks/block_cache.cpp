// Small recycled blocks, for the states of futures and for tasklets.

#include <new>

#include <amalgam/tasks/detail/future_state.hpp>

#include "tasks/recycler.hpp"
#include "tasks/sanitizer.hpp"

namespace amalgam::detail {

namespace {

constexpr std::size_t granule = 64;
constexpr std::size_t classes = 16;  // up to 1 KiB: a call with its future fits

void release_block(free_node& node) noexcept {
    ::operator delete(static_cast<void*>(&node));
}

struct block_depot : depot {
    constexpr block_depot() noexcept : depot(64, 16, release_block) {}
};
constinit block_depot depots[classes];

struct thread_blocks {
    free_stock stocks[classes];
    bool closed = false;  // the thread ends: keep nothing

    ~thread_blocks() {
        closed = true;
        for (std::size_t i = 0; i < classes; ++i)
            stocks[i].give_all(depots[i]);
    }
};

// Not inlined: the caller may be a ULT that has moved to another thread since it last
// asked, and the compiler would keep the old thread's address.
[[gnu::noinline]] thread_blocks& blocks() noexcept {
    thread_local thread_blocks own;
    asm volatile("");
    return own;
}

}  // namespace

void* allocate_block(std::size_t bytes) {
    const std::size_t size_class = (bytes - 1) / granule;
    // Sanitized builds see every life and death.
    if (sanitized || size_class >= classes) return ::operator new(bytes);
    if (free_node* node = blocks().stocks[size_class].pop(depots[size_class])) return node;
    return ::operator new((size_class + 1) * granule);
}

void free_block(void* memory, std::size_t bytes) noexcept {
    const std::size_t size_class = (bytes - 1) / granule;
    thread_blocks* own = nullptr;
    if (sanitized || size_class >= classes || (own = &blocks())->closed) {
        ::operator delete(memory);
        return;
    }
    own->stocks[size_class].push(*::new (memory) free_node{nullptr}, depots[size_class]);
}

}  // namespace amalgam::detail
