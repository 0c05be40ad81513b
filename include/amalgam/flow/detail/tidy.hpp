#pragma once

#include <cstddef>
#include <type_traits>

namespace amalgam::detail {

/// Frees what a consumed item holds, but keeps small blocks of text and numbers: the next item
/// copied into the slot reuses them without the heap.
template <typename T>
void tidy(T& consumed) {
    constexpr std::size_t kept_bytes = 1024;
    if constexpr (std::is_trivially_copyable_v<T>) {
        // Holds nothing.
    } else if constexpr (requires {
                             consumed.capacity();
                             typename T::value_type;
                         }) {
        if constexpr (std::is_trivially_copyable_v<typename T::value_type>) {
            if (consumed.capacity() * sizeof(typename T::value_type) > kept_bytes)
                T().swap(consumed);
        } else {
            consumed = T();
        }
    } else {
        consumed = T();
    }
}

}  // namespace amalgam::detail
