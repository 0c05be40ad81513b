#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include <amalgam/core/bytes.hpp>

#include "fabric/memory/segments.hpp"

namespace amalgam::detail {

/// A fetching operation on the 64-bit number in a region.
struct atomic_operation {
    static constexpr std::size_t bytes = sizeof(std::uint64_t);
    enum class kind : std::uint8_t { fetch_add, compare_swap };

    kind what = kind::fetch_add;
    std::uint64_t operand = 0;  ///< fetch_add: what to add; compare_swap: what is expected.
    std::uint64_t desired = 0;  ///< compare_swap.

    /// Carries it out and returns what was there before. Precondition: `at` is aligned to 8 bytes.
    /// Also for memory that several processes map: the processor's atomics do not depend on the
    /// address.
    std::uint64_t apply(std::byte* at) const noexcept {
        static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free);
        const std::atomic_ref word(*reinterpret_cast<std::uint64_t*>(at));
        if (what == kind::fetch_add) return word.fetch_add(operand, std::memory_order_seq_cst);
        std::uint64_t before = operand;
        word.compare_exchange_strong(before, desired, std::memory_order_seq_cst);
        return before;
    }
};

/// The number at that position, or nullptr if it is not aligned or not within one segment.
inline std::byte* number_at(std::span<const mutable_bytes> segments,
                            const segment_cursor& at) noexcept {
    const mutable_bytes& here = segments[at.index];
    if (here.size() - at.within < atomic_operation::bytes) return nullptr;
    std::byte* const number = here.data() + at.within;
    return reinterpret_cast<std::uintptr_t>(number) % atomic_operation::bytes == 0 ? number
                                                                                   : nullptr;
}

}  // namespace amalgam::detail
