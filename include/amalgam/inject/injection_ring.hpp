#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <amalgam/bulk/bulk.hpp>
#include <amalgam/inject/injection_target.hpp>
#include <amalgam/inject/injector.hpp>

namespace amalgam {

namespace detail {
class ring_memory;
}

/// The other way to ship code, which the paper behind this layer takes, kept to compare with: the
/// source puts messages with their code into memory of the target, and the target polls that.
///
/// Prefer injection::post(): it needs no address to agree on, sleeps while nothing comes, and is
/// faster while payloads are short. One ring is for one source, which may write there whatever it
/// likes at any time: for sources that are trusted. What runs has the injection_target's rights and
/// arguments; nobody has called it, so it has no results, and nobody to ask (see image.h). Owner:
/// its memory. Borrows the engine of the target; what it runs may outlive the target. Threads: one
/// at a time. Failure: the constructor throws error{invalid} for less than 4 KiB or more than 1
/// GiB, and what
///          expose() throws.
class injection_ring {
public:
    explicit injection_ring(const injection_target& runs, std::size_t bytes = std::size_t{1} << 20);
    injection_ring(const injection_ring&) = delete;
    injection_ring& operator=(const injection_ring&) = delete;
    ~injection_ring();

    /// For the source's injection_ring_writer, as an argument or result of a call.
    const bulk& memory() const noexcept;
    /// Runs what has come, in order, at most so many; how many came: what may not run counts, too,
    /// and is logged. Does not wait. When the source
    /// writes what is no message, the log says so, and nothing of the ring runs any more.
    std::size_t poll(std::size_t most = 64);

private:
    std::unique_ptr<detail::ring_memory> memory_;
};

/// Its source.
///
/// Owner:   a handle of the target's memory.
/// Threads: one at a time.
class injection_ring_writer {
public:
    /// Failure: throws error{invalid} for memory that is no ring.
    explicit injection_ring_writer(bulk ring);

    /// Puts the message, with its code, into the ring, in two steps, so that it is never seen in
    /// parts: parks the ULT or thread until it is there. False: there is no room yet.
    /// Failure: throws error{too_large} for more than half of the ring, {invalid} when memory is
    ///          attached or the message is none, and what bulk::push() throws.
    bool try_post(const injection& message);
    /// The same, but waits for room.
    void post(const injection& message);

private:
    bool has_room(std::uint64_t bytes);

    bulk ring_;
    std::uint64_t written_ = 0;  ///< Where the next message goes, counted without end.
    std::uint64_t taken_ = 0;    ///< The target is at least this far.
};

}  // namespace amalgam
