#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <sys/types.h>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/detail/forks.hpp>
#include <amalgam/core/status.hpp>

#include "fabric/memory/segments.hpp"

namespace amalgam::detail {

/// Memory of another process: addresses to pass to the kernel, never to dereference.
using foreign_segments = std::span<const const_bytes>;

/// The bytes at `address` in another process.
inline const_bytes foreign_bytes(std::uint64_t address, std::uint64_t bytes) noexcept {
    return {reinterpret_cast<const std::byte*>(address), static_cast<std::size_t>(bytes)};
}

/// Segments on one side of a copy, and the current position, which the copy functions advance.
template <typename Bytes>
struct cross_place {
    std::span<const Bytes> segments;
    segment_cursor at;
};

/// Copies `bytes` bytes from the memory of process `from`, with one system call per 64 segments.
///
/// Failure: no_access or no_access_there if memory of this process or of the other cannot be
///          accessed; `unsupported` with EPERM if the kernel refuses; `disconnected` with ESRCH if
///          the process is gone. Part may have been copied.
/// Threads: any.
status copy_from_process(pid_t from, cross_place<mutable_bytes>& to,
                         cross_place<const_bytes>& source, std::size_t bytes) noexcept;

/// Copies to the memory of process `to`. Otherwise as copy_from_process().
status copy_to_process(pid_t to, cross_place<const_bytes>& source, cross_place<const_bytes>& target,
                       std::size_t bytes) noexcept;

/// Whether the kernel refused the copy, as opposed to a memory fault.
inline bool is_refusal_of_kernel(status what) noexcept {
    return what.code == errc::unsupported;
}

/// Words that a process provides for peers to test access.
struct shm_probe {
    std::uint64_t token = 0;    ///< The incarnation of the port; checked by readers.
    std::uint64_t scratch = 0;  ///< Writers write here; nobody reads it.
};

/// A probe in this process, announced to peers. A peer may test it after its owner has been
/// destroyed, so its memory is never freed but reused by the next probe.
///
/// Threads: any.
class shm_own_probe {
public:
    /// Failure: throws std::bad_alloc.
    explicit shm_own_probe(std::uint64_t token);
    shm_own_probe(const shm_own_probe&) = delete;
    ~shm_own_probe();

    std::uint64_t token() const noexcept { return place_.token; }
    /// As sent in a hello.
    std::uint64_t address() const noexcept { return reinterpret_cast<std::uint64_t>(&place_); }

private:
    const fork_check forked_;
    shm_probe& place_;
};

/// Tries to read and write the probe at `address` of process `of`. Returns ok; `unsupported` with
/// the kernel's errno; or `mismatch` if something else is there.
status try_cross_memory(pid_t of, std::uint64_t address, std::uint64_t token) noexcept;

}  // namespace amalgam::detail
