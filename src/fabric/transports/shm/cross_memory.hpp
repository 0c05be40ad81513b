#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <sys/types.h>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/status.hpp>

#include "fabric/segments.hpp"

namespace amalgam::detail {

/// Where bytes stand in another process: addresses to hand to the kernel, never to read through.
using foreign_segments = std::span<const const_bytes>;

/// The bytes at `address` of another process.
inline const_bytes foreign_bytes(std::uint64_t address, std::uint64_t bytes) noexcept {
    return {reinterpret_cast<const std::byte*>(address), static_cast<std::size_t>(bytes)};
}

/// A list of segments on each side of a copy, and how far it has come. The copier moves both
/// places on by what was copied.
template <typename Bytes>
struct cross_place {
    std::span<const Bytes> segments;
    segment_cursor at;
};

/// Copies `bytes` bytes out of the memory of process `from`, by one system call per 64 segments.
///
/// Failure: no_access or no_access_there when the memory of this process or of the other cannot be
///          accessed; `unsupported` with EPERM when the kernel refuses; `disconnected` with ESRCH
///          when the process is gone; part may be copied.
/// Threads: any.
status copy_from_process(pid_t from, cross_place<mutable_bytes>& to,
                         cross_place<const_bytes>& source, std::size_t bytes) noexcept;

/// Copies into the memory of process `to`. Otherwise as copy_from_process().
status copy_to_process(pid_t to, cross_place<const_bytes>& source, cross_place<const_bytes>& target,
                       std::size_t bytes) noexcept;

/// Whether a failure means that the kernel does not let us, rather than that memory is amiss.
inline bool is_refusal_of_kernel(status what) noexcept {
    return what.code == errc::unsupported;
}

/// Words that a process keeps for others to try their hands on.
struct shm_probe {
    std::uint64_t token = 0;    ///< Readers expect the incarnation of the port here.
    std::uint64_t scratch = 0;  ///< Writers write here; nobody reads it.
};

/// A probe of this process, for peers to be told of. One of them may try it late, when who told it
/// has ended: so its memory is never given back, and the next probe uses it again.
///
/// Threads: any.
class shm_own_probe {
public:
    /// Throws std::bad_alloc.
    explicit shm_own_probe(std::uint64_t token);
    shm_own_probe(const shm_own_probe&) = delete;
    ~shm_own_probe();

    std::uint64_t token() const noexcept { return place_.token; }
    /// As a greeting says it.
    std::uint64_t address() const noexcept { return reinterpret_cast<std::uint64_t>(&place_); }

private:
    shm_probe& place_;
};

/// Tries to read and write the probe at `address` of process `of`.
/// ok, or why not: `unsupported` with the kernel's errno; `mismatch` when something else is there.
status try_cross_memory(pid_t of, std::uint64_t address, std::uint64_t token) noexcept;

}  // namespace amalgam::detail
