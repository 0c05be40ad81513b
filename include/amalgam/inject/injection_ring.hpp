#pragma once

#include <cstddef>
#include <cstdint>

#include <amalgam/bulk/bulk.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/inject/injection_target.hpp>
#include <amalgam/inject/injector.hpp>

namespace amalgam {

namespace detail {
class ring_memory;
}

/// Alternative code shipping, as in the paper behind this layer; kept for comparison. The source
/// writes messages with their code into the target's memory, and the target polls it.
///
/// Prefer injection::post(): it needs no address exchange, sleeps when idle, and is faster for
/// short payloads. A ring serves one source, which may write anything there at any time: use it for
/// trusted sources only. Injected code has the injection_target's rights and arguments. It has no
/// caller, hence no result and nobody to call back (see image.h).
/// Owner:   its memory. Borrows the target's engine; code it runs may outlive the target.
/// Threads: one at a time.
/// Failure: the constructor throws error{invalid} for less than 4 KiB or more than 1 GiB, and what
///          expose() throws.
class injection_ring {
public:
    explicit injection_ring(const injection_target& runs, std::size_t bytes = std::size_t{1} << 20);
    injection_ring(const injection_ring&) = delete;
    injection_ring& operator=(const injection_ring&) = delete;
    ~injection_ring();

    /// Pass this to the source's injection_ring_writer, as an argument or result of a call.
    const bulk& memory() const noexcept;
    /// Runs pending messages, in order, at most `most`; returns how many there were. Includes
    /// messages not allowed to run, which are logged. Does not wait. If the source writes a
    /// malformed message, logs it and stops serving this ring for good.
    std::size_t poll(std::size_t most = 64);

private:
    std::unique_ptr<detail::ring_memory> memory_;
};

/// The source's end of an injection_ring.
///
/// Owner:   a handle to the target's memory.
/// Threads: one at a time.
class injection_ring_writer {
public:
    /// Failure: throws error{invalid} for memory that is not a ring.
    explicit injection_ring_writer(bulk ring);

    /// Writes the message, with its code, in two steps, so that the target never sees part of it.
    /// Parks the ULT or thread until written. False: no room yet.
    /// Failure: throws error{too_large} for more than half of the ring, {invalid} if memory is
    ///          attached or the message is empty, and what bulk::push() throws.
    bool try_post(const injection& message);
    /// The same, but waits for room.
    void post(const injection& message);

private:
    bool has_room(std::uint64_t bytes);

    bulk ring_;
    std::uint64_t written_ = 0;  ///< Position of the next message; never wraps.
    std::uint64_t taken_ = 0;    ///< Lower bound of the target's position.
};

}  // namespace amalgam
