#pragma once

#include <cstddef>
#include <utility>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/core/result.hpp>

namespace amalgam {

/// Zeroed, page-aligned memory from a port that peers on the same host may map. Peers then put and
/// get in regions inside it at memory speed, without the kernel. Ports without this ability return
/// private memory. See port::allocate().
///
/// Owner:   owns its bytes. May outlive the port, but is no longer shared then. Destroy all regions
///          inside it first. A block created as shared is also shared with fork() children: each
///          sees the other's writes.
/// Threads: like a plain value; may be destroyed on any thread.
/// Cost:    whole pages, committed on first touch; at least one system call each to create and to
///          free. A large block also takes a file descriptor.
class shared_block {
public:
    /// The memory and how to free it; implemented by a transport.
    class body {
    public:
        body() = default;
        body(const body&) = delete;
        body& operator=(const body&) = delete;
        virtual ~body() = default;

        virtual mutable_bytes bytes() const noexcept = 0;
        virtual bool is_shared() const noexcept = 0;
    };

    shared_block() noexcept = default;
    explicit shared_block(std::unique_ptr<body> memory) noexcept : memory_(std::move(memory)) {}

    explicit operator bool() const noexcept { return memory_ != nullptr; }
    /// Exactly the size that was asked for.
    mutable_bytes bytes() const noexcept {
        return memory_ == nullptr ? mutable_bytes() : memory_->bytes();
    }
    /// Whether peers may map it. False for private memory and once the port is gone.
    bool is_shared() const noexcept { return memory_ != nullptr && memory_->is_shared(); }

private:
    std::unique_ptr<body> memory_;
};

/// A block of private memory; port::allocate() falls back to it.
/// Failure: `invalid` for zero bytes; `no_memory`.
result<shared_block> allocate_private(std::size_t bytes) noexcept;

}  // namespace amalgam
