#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/result.hpp>

namespace amalgam {

/// Memory from a port, at the start of a page and zeroed, that its peers on the same host may map:
/// they then put and get in regions that lie inside of it without the kernel, at the speed of
/// memory. Ports that know no such way give private memory. See port::allocate().
///
/// Owner:   owns its bytes. It may outlive the port, and is not shared any more then. Regions that
///          lie inside must be gone before it. One that was shared when it was made is shared
///          with children by fork(), too: what either writes, both see.
/// Threads: like a plain value; it may end on any thread.
/// Cost:    whole pages, which are taken when they are first touched, and a system call or more to
///          make it and to free it. A long one also takes a descriptor.
class shared_block {
public:
    /// The memory and how it is given back; what a transport makes.
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
    /// As many as were asked for.
    mutable_bytes bytes() const noexcept {
        return memory_ == nullptr ? mutable_bytes() : memory_->bytes();
    }
    /// Whether peers may map it. False for private memory, and once the port is gone.
    bool is_shared() const noexcept { return memory_ != nullptr && memory_->is_shared(); }

private:
    std::unique_ptr<body> memory_;
};

/// A block of private memory: what port::allocate() falls back to.
/// Failure: `invalid` for no bytes; `no_memory`.
result<shared_block> allocate_private(std::size_t bytes) noexcept;

}  // namespace amalgam
