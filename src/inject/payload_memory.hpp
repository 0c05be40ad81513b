#pragma once

#include <algorithm>
#include <cstddef>
#include <new>

namespace amalgam::detail {

/// A payload, where its image wants it. What is in it is whatever was there.
struct payload_memory {
    payload_memory(std::size_t room, std::size_t alignment)
        : align(static_cast<std::align_val_t>(alignment)),
          data(static_cast<std::byte*>(::operator new(std::max<std::size_t>(room, 1), align))),
          bytes(room) {}
    payload_memory(const payload_memory&) = delete;
    payload_memory& operator=(const payload_memory&) = delete;
    ~payload_memory() { ::operator delete(data, align); }

    const std::align_val_t align;
    std::byte* const data;
    std::size_t bytes;
};

}  // namespace amalgam::detail
