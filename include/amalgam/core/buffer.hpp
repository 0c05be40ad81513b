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

/// Owned bytes of fixed capacity, aligned to 64. Contents start uninitialized.
///
/// Owner:   owns its memory; a buffer from a pool returns there, from any thread, and may
///          outlive the pool.
/// Threads: like a plain value.
/// Cost:    moving is two words; creation from a pool that has a free block allocates nothing.
class buffer {
public:
    buffer() noexcept = default;  ///< Holds nothing: size and capacity 0.
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

    /// A buffer of no pool, of `size` bytes.
    /// Failure: throws error{no_memory}.
    static buffer of(std::size_t size);

    std::byte* data() noexcept { return data_; }
    const std::byte* data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }  ///< Bytes in use.
    bool empty() const noexcept { return size_ == 0; }
    std::size_t capacity() const noexcept;  ///< Bytes that resize() may grow to.

    mutable_bytes bytes() noexcept { return {data_, size_}; }
    const_bytes bytes() const noexcept { return {data_, size_}; }

    /// Changes size() only; bytes in common stay, new ones are uninitialized.
    /// Precondition: size <= capacity().
    void resize(std::size_t size) noexcept;

    /// Gives the memory up now; holds nothing afterwards.
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

/// What a pool may keep.
struct buffer_pool_options {
    /// Free memory kept per size class, in bytes; what comes back past it goes to the heap.
    /// A class of larger blocks keeps one.
    std::size_t keep_bytes_per_class = std::size_t{8} << 20;
};

/// What a pool has done so far, and holds now.
struct buffer_pool_counts {
    std::uint64_t allocated = 0;   ///< Blocks that came from the heap.
    std::uint64_t freed = 0;       ///< Blocks that went back to the heap.
    std::uint64_t idle_bytes = 0;  ///< Kept free, ready to be taken.
};

/// Buffers in size classes of powers of two, 256 B to 64 MiB, recycled.
///
/// Threads: take() and the return of a buffer may run concurrently on any threads; nobody
///          waits for anybody.
/// Failure: take() throws error{no_memory}; try_take() gives an empty buffer.
/// Cost:    one uncontended atomic exchange to take and one to return; no allocation while a
///          free block of the class is there. Past 64 MiB each buffer comes from the heap.
class buffer_pool {
public:
    static constexpr std::size_t smallest_bytes = 256;
    static constexpr std::size_t largest_bytes = std::size_t{64} << 20;

    explicit buffer_pool(buffer_pool_options options = {});
    buffer_pool(const buffer_pool&) = delete;
    buffer_pool& operator=(const buffer_pool&) = delete;
    ~buffer_pool();  ///< Buffers still out stay valid, and go to the heap when they end.

    /// A buffer with size() == `size`, capacity() the class above it.
    buffer take(std::size_t size);
    buffer try_take(std::size_t size) noexcept;

    /// Gives all free memory back to the heap.
    void trim() noexcept;

    /// Exact when nothing else runs; a snapshot otherwise.
    buffer_pool_counts counts() const noexcept;

private:
    detail::pool_core* core_;
};

}  // namespace amalgam
