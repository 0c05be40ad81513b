#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include <amalgam/bulk/bulk.hpp>
#include <amalgam/core/bytes.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/rpc/engine.hpp>

namespace amalgam {

namespace detail {
class served_block;
class served_blocks;
}  // namespace detail

/// A kind of memory whose bytes are not reached by a pointer: that of a GPU, a mapped device, a
/// compressed store. Derive from it to move such memory in bulk. host_memory() is one, too.
///
/// Threads: any member from any thread, several at once, on other ranges of a block or the same.
/// Failure: members may throw; that ends the transfer. A peer gets the text, and the code of an
///          amalgam::error, such as `no_memory`; `handler_failed` for anything else.
class memory_kind {
public:
    virtual ~memory_kind() = default;

    virtual std::string_view name() const noexcept = 0;  ///< For messages, such as "cuda".
    virtual void* allocate(std::size_t bytes) = 0;       ///< Throws std::bad_alloc.
    virtual void release(void* memory, std::size_t bytes) noexcept = 0;
    /// Copies from `offset` of the block that begins at `memory`. On return the bytes are there.
    virtual void read(const void* memory, std::size_t offset, mutable_bytes into) = 0;
    virtual void write(void* memory, std::size_t offset, const_bytes from) = 0;
};

/// Ordinary memory, copied by memcpy(). Lives as long as the program.
memory_kind& host_memory() noexcept;

/// Bytes in memory of a kind. Borrows both.
struct memory_view {
    memory_kind* kind = nullptr;  ///< Moves the bytes; null: the view is empty.
    void* memory = nullptr;       ///< Where the block begins.
    std::size_t offset = 0;       ///< In the block: where the bytes begin.
    std::size_t bytes = 0;        ///< How many there are.
};

/// A block allocated from a kind, which must outlive it. Throws what memory_kind::allocate() does.
class memory_block {
public:
    memory_block(memory_kind& kind, std::size_t bytes)
        : all_{&kind, kind.allocate(bytes), 0, bytes} {}
    memory_block(memory_block&& other) noexcept : all_(std::exchange(other.all_, {})) {}
    memory_block& operator=(memory_block&& other) noexcept {
        std::swap(all_, other.all_);
        return *this;
    }
    ~memory_block() {
        if (all_.kind != nullptr) all_.kind->release(all_.memory, all_.bytes);
    }

    /// All of the block, for serve(), pull() and push().
    const memory_view& all() const noexcept { return all_; }
    operator const memory_view&() const noexcept { return all_; }

private:
    memory_view all_;
};

/// Reads all of `from` into memory of a kind, or writes such memory to all of `to`, through a few
/// host buffers. Otherwise as bulk::pull_pipelined() and bulk::push_pipelined().
/// Failure: also throws error{invalid} if the sizes differ or there is no kind, and whatever the
///          kind throws.
void pull(const bulk& from, const memory_view& into, const pipeline_options& how = {});
void push(const bulk& to, const memory_view& from, const pipeline_options& how = {});

/// Options of a memory_server.
struct memory_server_options {
    /// Host buffers that peers' requests use at once, of 1 MiB each. At least 1.
    std::size_t buffers = 32;
};

/// Memory of a kind that peers may pull from and push to while this object lives. Converts to the
/// bulk to send. Peers need not know of the kind.
///
/// Owner:   the caller owns the memory and the kind, which must outlive this.
/// Threads: like a plain value. Close or destroy it only where the caller can wait.
class [[nodiscard]] served_memory {
public:
    served_memory() noexcept = default;
    served_memory(served_memory&&) noexcept = default;
    served_memory& operator=(served_memory&& other) noexcept {
        std::swap(block_, other.block_);
        std::swap(bulk_, other.bulk_);
        return *this;
    }
    ~served_memory() { close(); }

    /// On return no peer accesses the bytes; what is in flight ends with `denied`, as does what
    /// comes later.
    void close() noexcept;

    /// What to send to a peer.
    const bulk& descriptor() const noexcept { return bulk_; }
    operator const bulk&() const noexcept { return bulk_; }

private:
    friend class memory_server;
    std::shared_ptr<detail::served_block> block_;
    bulk bulk_;
};

/// Lets peers move memory of any kind of this engine. Each piece is a call to the engine, whose
/// handler reads or writes the memory: use expose() for memory that a pointer reaches.
///
/// Owner:   the engine must outlive it. The destructor closes all it serves, as
///          served_memory::close().
/// Threads: any. Destroy it only where the caller can wait.
/// Failure: the constructor throws error{invalid} if the engine has one already, or for no buffers;
///          error{closed} after stop(). serve() throws error{invalid} for a view without a kind,
///          one past the end of the address space and for invalid rights, error{closed} after
///          stop(), std::bad_alloc.
/// Cost:    one call for each MiB, four of a transfer in flight.
class memory_server {
public:
    explicit memory_server(engine& where, const memory_server_options& options = {});
    memory_server(const memory_server&) = delete;
    memory_server& operator=(const memory_server&) = delete;
    ~memory_server();

    served_memory serve(const memory_view& memory, access rights);

private:
    engine& where_;
    std::shared_ptr<detail::served_blocks> blocks_;
};

}  // namespace amalgam
