#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include <amalgam/bulk/bulk.hpp>
#include <amalgam/core/bytes.hpp>
#include <amalgam/rpc/engine.hpp>

namespace amalgam {

class bulk_cache;

namespace detail {
class cache_core;
struct cache_block;
}  // namespace detail

/// Memory of a cache, registered with every port of its engine. Goes back when it ends.
///
/// Owner:   keeps its memory, also when the cache is gone. Copies of its descriptor name it only
///          while it lives: afterwards they name whatever the cache uses the memory for next.
///          With shm it is memory that other processes map, and a child of fork() shares it with
///          its parent: what either writes, both see.
/// Threads: like a plain value; may end on any thread.
class bulk_buffer {
public:
    bulk_buffer() noexcept = default;  ///< Holds nothing.
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
    ~bulk_buffer();

    explicit operator bool() const noexcept { return block_ != nullptr; }
    std::byte* data() const noexcept;
    std::size_t size() const noexcept { return size_; }
    std::size_t capacity() const noexcept;
    mutable_bytes bytes() const noexcept { return {data(), size_}; }
    std::byte* begin() const noexcept { return data(); }
    std::byte* end() const noexcept { return data() + size_; }
    /// Changes size() only. Precondition: size <= capacity().
    void resize(std::size_t size) noexcept { size_ = size; }
    /// For peers, with the rights of the cache. Costs no registration.
    bulk descriptor() const;

private:
    friend class bulk_cache;
    friend bulk expose_owned(engine& where, bulk_buffer&& bytes);
    bulk_buffer(std::shared_ptr<detail::cache_core> cache,
                std::shared_ptr<detail::cache_block> block, std::size_t size) noexcept;

    std::shared_ptr<detail::cache_core> cache_;
    std::shared_ptr<detail::cache_block> block_;
    std::size_t size_ = 0;
};

/// What a cache may hold.
struct bulk_cache_options {
    /// Memory of all its buffers, in use and idle.
    std::size_t max_bytes = std::size_t{256} << 20;
    access rights = access::read_write;  ///< Of its buffers' descriptors.
};

/// What a cache has done so far, and holds now.
struct bulk_cache_counts {
    std::uint64_t taken = 0;         ///< Buffers that were handed out ...
    std::uint64_t reused = 0;        ///< ... of those, without registering memory.
    std::uint64_t released = 0;      ///< Blocks that were freed to make room.
    std::uint64_t bytes_in_use = 0;  ///< In blocks that are out.
    std::uint64_t bytes_idle = 0;    ///< In blocks ready to be taken.
};

/// A pool of buffers that are registered with all ports of an engine, for what is moved again
/// and again: the source or the target of pulls and pushes, and memory to expose.
///
/// Owner:   buffers may outlive it.
/// Threads: any.
/// Failure: take() throws error{no_memory} when its limit, or a port's, is reached; error{closed}
///          after the engine's end. try_take() gives an empty buffer.
/// Cost:    a buffer that is taken again: one lock and no allocation. A new one: its memory, and
///          a registration per port. Sizes are powers of two from 4 KiB.
class bulk_cache {
public:
    explicit bulk_cache(engine& where, const bulk_cache_options& options = {});
    bulk_cache(const bulk_cache&) = delete;
    bulk_cache& operator=(const bulk_cache&) = delete;
    ~bulk_cache();  ///< Frees what is idle.

    /// A buffer with size() == `bytes`; its contents are whatever was there.
    bulk_buffer take(std::size_t bytes);
    bulk_buffer try_take(std::size_t bytes) noexcept;
    /// Frees what is idle.
    void trim() noexcept;
    bulk_cache_counts counts() const noexcept;

private:
    std::shared_ptr<detail::cache_core> core_;
};

}  // namespace amalgam
