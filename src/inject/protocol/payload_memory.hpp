#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>

namespace amalgam::detail {

/// Memory for a payload, aligned for its image. Uninitialized.
struct payload_memory {
    /// Failure: throws std::bad_alloc.
    payload_memory(std::size_t room, std::size_t alignment)
        : align(static_cast<std::align_val_t>(alignment)),
          data(static_cast<std::byte*>(::operator new(possible(room), align))),
          bytes(room) {}
    payload_memory(const payload_memory&) = delete;
    payload_memory& operator=(const payload_memory&) = delete;
    ~payload_memory() { ::operator delete(data, align); }

    const std::align_val_t align;
    std::byte* const data;
    std::size_t bytes;

private:
    /// operator new allocates too little for a size that overflows when rounded up.
    static std::size_t possible(std::size_t room) {
        if (room > static_cast<std::size_t>(PTRDIFF_MAX) / 2) throw std::bad_alloc();
        return std::max<std::size_t>(room, 1);
    }
};

}  // namespace amalgam::detail
