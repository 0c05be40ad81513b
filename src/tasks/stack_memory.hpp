#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

namespace amalgam::detail {

/// The memory of one call stack: a guard that nobody may touch, and the stack above it,
/// committed as it is touched.
struct stack_memory {
    // Address space is free; frames that step over a narrower guard are not.
    static constexpr std::size_t guard_bytes = 64 * 1024;

    std::byte* low = nullptr;  ///< Where the guard begins.
    std::size_t bytes = 0;     ///< With the guard.
    unsigned known_as = 0;     ///< To valgrind, which would take a switch for a wild access.

    std::byte* bottom() const noexcept { return low + guard_bytes; }
    std::byte* top() const noexcept { return low + bytes; }
    /// `address` is in the guard.
    bool guards(const void* address) const noexcept {
        return low != nullptr &&
               reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(low) <
                   guard_bytes;
    }
};

/// At least `usable_bytes` above a guard. Throws error{no_memory}.
stack_memory map_stack(std::size_t usable_bytes);

/// Gives its pages back to the system, and its address space too when that can be. Never fails.
void unmap_stack(stack_memory memory) noexcept;

std::mutex& kept_stacks_lock() noexcept;  ///< See forks.hpp.

/// The kernel guards stacks within one mapping (Linux 6.13); else each stack takes two of
/// vm.max_map_count. Known once the first stack was mapped.
bool guards_share_mappings() noexcept;

}  // namespace amalgam::detail
