#pragma once

#include <cerrno>
#include <cstddef>
#include <span>
#include <vector>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/status.hpp>

#include "fabric/limits.hpp"
#include "fabric/memory/segments.hpp"

namespace amalgam::detail {

/// Status of an operation whose memory cannot be read or written.
inline constexpr status no_access{errc::invalid, EFAULT};
/// The same for memory at the peer. On the wire it is `no_access`, from the peer's point of view.
inline constexpr status no_access_there{errc::invalid, EREMOTEIO};

/// Copies that fail instead of faulting, for memory that may be unmapped or inaccessible: a mapping
/// of a truncated file, a read-only page. The kernel copies, so a bad page fails the call and
/// raises no signal.
///
/// Threads: any.
/// Cost:    a system call; about twice as long as memcpy for large copies. If the kernel refuses
///          the call altogether (seccomp), plain memcpy.

/// False: part of `from` cannot be read; `to` is then undefined.
bool read_guarded(const_bytes from, std::byte* to) noexcept;
/// False: part of `to` cannot be written; some of it may have been.
bool write_guarded(mutable_bytes to, const std::byte* from) noexcept;
/// Whether every byte can be read at the moment.
bool is_readable(const_bytes memory) noexcept;

/// Whether every byte can be read, or written, at the moment, without doing so: faults pages in.
/// For memory that is then used in place. False for memory of devices. Cost: a system call, and
/// what the kernel needs per page. Before Linux 5.14 is_readable_now()
///       copies, and is_writable_now() is always true.
bool is_readable_now(const_bytes memory) noexcept;
bool is_writable_now(mutable_bytes memory) noexcept;

/// Copies put and get frames from and to user memory: plainly, or guarded where each frame costs a
/// system call anyway.
class user_memory {
public:
    /// Failure: throws std::bad_alloc.
    void guard() { scratch_.resize(limits::max_copy_bytes); }

    /// Copies `from` to position `at` and advances `at`. False: some of it cannot be written.
    bool copy_in(std::span<const mutable_bytes> to, segment_cursor& at, const_bytes from) noexcept;
    /// Whether all of it can be read at the moment, without reading it: faults it in. True where
    /// may_update() is, and for device memory.
    /// Cost: a system call per segment, and what the kernel needs per page.
    bool may_read(std::span<const const_bytes> memory) const noexcept;
    /// Whether memory within one page can be read and written in place, by an atomic operation.
    /// True if not guarded, or if the system cannot tell (before Linux 5.14). Cost: a system call.
    bool may_update(mutable_bytes memory) const noexcept;
    /// Reads what a link is about to copy (`pieces`, from `first`) into our own memory; one
    /// remaining piece then refers to it. False: some of it cannot be read.
    bool fetch_small(std::vector<const_bytes>& pieces, std::size_t first,
                     std::size_t bytes) noexcept;

private:
    std::vector<std::byte> scratch_;  ///< Empty: not guarded.
};

}  // namespace amalgam::detail
