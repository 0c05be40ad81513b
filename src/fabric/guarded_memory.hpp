#pragma once

#include <cstddef>

#include <amalgam/core/bytes.hpp>

namespace amalgam::detail {

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

}  // namespace amalgam::detail
