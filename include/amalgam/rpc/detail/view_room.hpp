#pragma once

#include <cstddef>
#include <vector>

#include <amalgam/core/buffer.hpp>

namespace amalgam::detail {

/// Memory for elements decoded for viewing; all of it lives as long as this.
///
/// Owner:   owns the memory.
/// Failure: throws error{no_memory}.
/// Cost:    small pieces share blocks, so many of them take at most twice their size.
class view_room {
public:
    static constexpr std::size_t block_bytes = 4096;

    /// Uninitialized. Precondition: `alignment` is a power of two, at most 64.
    std::byte* take(std::size_t bytes, std::size_t alignment);
    /// Total size of all blocks.
    std::size_t capacity() const noexcept { return capacity_; }

private:
    std::byte* fresh(std::size_t bytes);

    std::vector<buffer> blocks_;
    std::byte* shared_ = nullptr;  // Rest of the block shared by small pieces.
    std::size_t left_ = 0;
    std::size_t capacity_ = 0;
};

}  // namespace amalgam::detail
