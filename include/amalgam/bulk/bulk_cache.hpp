#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <amalgam/bulk/bulk.hpp>
#include <amalgam/core/bytes.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/rpc/engine.hpp>

namespace amalgam {

class bulk_cache;

namespace detail {
class cache_core;
struct cache_block;
}  // namespace detail

/// A buffer from a cache, registered with every port of its engine. Returns to the cache on
/// destruction.
///
/// Owner:   keeps its memory alive, even after the cache is gone. Copies of its descriptor are
///          valid only while it lives; afterwards they refer to whatever the cache uses the memory
///          for next. With shm, other processes map the memory, and a child of fork() shares it
///          with its parent: each sees the other's writes.
/// Threads: like a plain value; may be destroyed on any thread.
class bulk_buffer {
public:
    bulk_buffer() noexcept = default;  ///< Empty.
    bulk_buffer(bulk_buffer&& other) noexcept
        : cache_(std::move(other.cache_)),
          block_(std::move(other.block_)),
          size_(std::exchange(other.size_, 0)) {}
    bulk_buffer& operator=(bulk_buffer&& other) noexcept {
        bulk_buffer taken(std::move(other));
        std::swap(cache_, taken.cache_);
        std::swap(block_, taken.block_);
        std::swap(size_, taken.size_);
        return *this;
    }
    ~bulk_buffer() {
        if (block_ != nullptr) give_back();
    }

    explicit operator bool() const noexcept { return block_ != nullptr; }
    std::byte* data() const noexcept;
    std::size_t size() const noexcept { return size_; }
    std::size_t capacity() const noexcept;
    mutable_bytes bytes() const noexcept { return {data(), size_}; }
    std::byte* begin() const noexcept { return data(); }
    std::byte* end() const noexcept { return data() + size_; }
    /// Changes size() only. Precondition: size <= capacity().
    void resize(std::size_t size) noexcept { size_ = size; }
    /// Descriptor for peers, with the cache's rights. Needs no registration.
    bulk descriptor() const;

private:
    friend class bulk_cache;
    friend bulk expose_owned(engine& where, bulk_buffer&& bytes);
    void give_back() noexcept;
    bulk_buffer(std::shared_ptr<detail::cache_core> cache,
                std::shared_ptr<detail::cache_block> block, std::size_t size) noexcept;

    std::shared_ptr<detail::cache_core> cache_;
    std::shared_ptr<detail::cache_block> block_;
    std::size_t size_ = 0;
};

/// Limits of a cache.
struct bulk_cache_options {
    /// Total memory of its buffers, in use and idle.
    std::size_t max_bytes = std::size_t{256} << 20;
    access rights = access::read_write;  ///< Of its buffers' descriptors.
    bool shareable = false;              ///< The same: see expose_options.
};

/// Statistics of a cache.
struct bulk_cache_counts {
    std::uint64_t taken = 0;         ///< Buffers handed out ...
    std::uint64_t reused = 0;        ///< ... of these, without registering memory.
    std::uint64_t released = 0;      ///< Blocks freed to make room.
    std::uint64_t bytes_in_use = 0;  ///< In blocks handed out.
    std::uint64_t bytes_idle = 0;    ///< In blocks ready for reuse.
};

/// A pool of buffers registered with all ports of an engine, for repeated transfers: sources and
/// targets of pulls and pushes, and memory to expose.
///
/// Owner:   buffers may outlive it.
/// Threads: any.
/// Failure: take() throws error{no_memory} at its own limit or a port's, error{closed} after the
///          engine has ended. try_take() returns an empty buffer.
/// Cost:    reusing a buffer: one lock, no allocation. A new one: its memory, and one registration
///          per port. Sizes are powers of two from 4 KiB.
class bulk_cache {
public:
    explicit bulk_cache(engine& where, const bulk_cache_options& options = {});
    bulk_cache(const bulk_cache&) = delete;
    bulk_cache& operator=(const bulk_cache&) = delete;
    ~bulk_cache();  ///< Frees idle memory.

    /// A buffer with size() == `bytes` and unspecified contents.
    bulk_buffer take(std::size_t bytes);
    bulk_buffer try_take(std::size_t bytes) noexcept;
    /// Frees idle memory.
    void trim() noexcept;
    bulk_cache_counts counts() const noexcept;

private:
    std::shared_ptr<detail::cache_core> core_;
};

}  // namespace amalgam
