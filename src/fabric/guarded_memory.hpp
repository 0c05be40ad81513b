#pragma once

#include <cerrno>
#include <cstddef>
#include <span>
#include <vector>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/status.hpp>

#include "fabric/segments.hpp"
#include "fabric/send_queue.hpp"

namespace amalgam::detail {

/// What an operation ends with whose memory cannot be read or written.
inline constexpr status no_access{errc::invalid, EFAULT};
/// Likewise, when it is the memory at the peer. On the wire that is `no_access`, of the peer's own.
inline constexpr status no_access_there{errc::invalid, EREMOTEIO};

/// Copies that fail instead of faulting, for memory that may be gone or may not be accessed: a
/// mapping of a file that somebody truncated, a page that is read-only. The kernel copies, so a
/// bad page is an error of the call and no signal.
///
/// Threads: any.
/// Cost:    a system call; about twice as long as memcpy for large copies. Where the kernel refuses
///          the call altogether (seccomp), plain memcpy.

/// False: not all of `from` can be read; what is at `to` is undefined then.
bool read_guarded(const_bytes from, std::byte* to) noexcept;
/// False: not all of `to` can be written; some of it may have been.
bool write_guarded(mutable_bytes to, const std::byte* from) noexcept;
/// Whether every byte can be read now.
bool is_readable(const_bytes memory) noexcept;

/// How the frames of a put or get are copied from and to memory of the user's: plainly, or guarded
/// where a system call for each frame is made anyway.
class user_memory {
public:
    /// Longest payload that a guarded link may copy when it is sent.
    static constexpr std::size_t scratch_bytes = send_queue::max_copy_bytes;

    /// Failure: throws std::bad_alloc.
    void guard() { scratch_.resize(scratch_bytes); }

    /// Copies `from` to the place `at`, and moves `at` past it. False: some of it cannot be
    /// written.
    bool copy_in(std::span<const mutable_bytes> to, segment_cursor& at, const_bytes from) noexcept;
    /// What is about to be copied by a link, `pieces`, is read now, into memory of ours that the
    /// one piece left then names. False: some of it cannot be read.
    bool fetch_small(std::vector<const_bytes>& pieces, std::size_t first,
                     std::size_t bytes) noexcept;

private:
    std::vector<std::byte> scratch_;  ///< Empty: not guarded.
};

}  // namespace amalgam::detail
