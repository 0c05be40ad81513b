#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "tasks/limits.hpp"

namespace amalgam::detail {

/// The memory of one call stack: an inaccessible guard, and above it the stack, committed as it is
/// touched.
struct stack_memory {
    std::byte* low = nullptr;  ///< Start of the guard.
    std::size_t bytes = 0;     ///< Including the guard.
    unsigned known_as = 0;     ///< Valgrind's id; without it, a switch looks like a wild access.

    std::byte* bottom() const noexcept { return low + limits::guard_bytes; }
    std::byte* top() const noexcept { return low + bytes; }
    /// Whether `address` is in the guard.
    bool guards(const void* address) const noexcept {
        return low != nullptr &&
               reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(low) <
                   limits::guard_bytes;
    }
};

/// Maps at least `usable_bytes` above a guard. Throws error{no_memory}. Whoever calls it for each
/// of many stacks of one size shares the system calls: each time it has to ask the system, it maps
/// twice as many as before, up to limits::max_slab_stacks, and touches their first pages.
stack_memory map_stack(std::size_t usable_bytes);
stack_memory map_stack_of_many(std::size_t usable_bytes);

/// The same in memory of a user's, whose guard is his own, if there is any.
stack_memory borrow_stack(std::byte* bottom, std::size_t usable_bytes) noexcept;
void return_stack(stack_memory borrowed) noexcept;

/// Returns the pages to the system, and the address space too if possible. Never fails.
void unmap_stack(stack_memory memory) noexcept;

std::mutex& kept_stacks_lock() noexcept;  ///< See forks.hpp.

/// Whether the kernel guards stacks within one mapping (Linux 6.13); else each stack takes two of
/// vm.max_map_count. Known once the first stack has been mapped.
bool guards_share_mappings() noexcept;
/// For tests, where the kernel is not one: qemu does nothing for such a guard, and calls it done.
void set_guards_share_mappings(bool do_share) noexcept;

}  // namespace amalgam::detail
