#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <amalgam/core/bytes.hpp>

namespace amalgam {

namespace detail {
struct buffer_block;  // Header in front of the bytes; see buffer.cpp.
class pool_core;
void give_back(buffer_block* block) noexcept;
}  // namespace detail

/// Owned bytes of fixed capacity, 64-byte aligned. Initially uninitialized.
///
/// Owner:   owns its memory. A buffer from a pool returns to it, from any thread, and may outlive
///          the pool.
/// Threads: like a plain value.
/// Cost:    moving is two words; taking one from a pool with a free block allocates nothing.
class buffer {
public:
    buffer() noexcept = default;  ///< Empty: size and capacity 0.
    buffer(buffer&& other) noexcept
        : block_(std::exchange(other.block_, nullptr)),
          data_(std::exchange(other.data_, nullptr)),
          size_(std::exchange(other.size_, 0)) {}
    buffer& operator=(buffer&& other) noexcept {
        buffer taken(std::move(other));
        swap(taken);
        return *this;
    }
    ~buffer() {
        if (block_ != nullptr) detail::give_back(block_);
    }

    /// Allocates `size` bytes outside any pool.
    /// Failure: throws error{no_memory}.
    static buffer of(std::size_t size);

    std::byte* data() noexcept { return data_; }
    const std::byte* data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }  ///< Bytes in use.
    bool empty() const noexcept { return size_ == 0; }
    std::size_t capacity() const noexcept;  ///< Upper limit for resize().

    mutable_bytes bytes() noexcept { return {data_, size_}; }
    const_bytes bytes() const noexcept { return {data_, size_}; }

    /// Changes size() only; existing bytes are kept, new ones are uninitialized.
    /// Precondition: size <= capacity().
    void resize(std::size_t size) noexcept;

    /// Releases the memory now; empty afterwards.
    void reset() noexcept { *this = buffer(); }

    void swap(buffer& other) noexcept {
        std::swap(block_, other.block_);
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
    }

private:
    friend class buffer_pool;
    buffer(detail::buffer_block* block, std::size_t size) noexcept;

    detail::buffer_block* block_ = nullptr;
    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
};

/// Limits of a pool.
struct buffer_pool_options {
    /// Bytes of free memory kept per size class; memory returned beyond this goes to the heap. A
    /// class whose blocks are larger keeps one.
    std::size_t keep_bytes_per_class = std::size_t{8} << 20;
};

/// Statistics of a pool.
struct buffer_pool_counts {
    std::uint64_t allocated = 0;   ///< Blocks allocated from the heap.
    std::uint64_t freed = 0;       ///< Blocks returned to the heap.
    std::uint64_t idle_bytes = 0;  ///< Free bytes, ready to be taken.
};

/// Recycles buffers in power-of-two size classes, 256 B to 64 MiB.
///
/// Threads: take() and the return of buffers may run concurrently on any threads and never block
///          each other.
/// Failure: take() throws error{no_memory}; try_take() returns an empty buffer.
/// Cost:    one uncontended atomic exchange each to take and to return; no allocation if the class
///          has a free block. Above 64 MiB each buffer comes from the heap.
class buffer_pool {
public:
    /// Smallest size class; smaller requests get it.
    static constexpr std::size_t smallest_bytes = 256;
    /// Largest size class; larger buffers are not kept.
    static constexpr std::size_t largest_bytes = std::size_t{64} << 20;

    explicit buffer_pool(buffer_pool_options options = {});
    buffer_pool(const buffer_pool&) = delete;
    buffer_pool& operator=(const buffer_pool&) = delete;
    ~buffer_pool();  ///< Buffers still in use stay valid; their memory then goes to the heap.

    /// Returns a buffer with size() == `size` and the capacity of its size class.
    buffer take(std::size_t size);
    buffer try_take(std::size_t size) noexcept;

    /// Returns all free memory to the heap.
    void trim() noexcept;

    /// Exact if nothing else runs; otherwise a snapshot.
    buffer_pool_counts counts() const noexcept;

private:
    detail::pool_core* core_;
};

}  // namespace amalgam
