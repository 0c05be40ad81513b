#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <sys/types.h>

#include <amalgam/core/result.hpp>
#include <amalgam/core/unique_fd.hpp>

namespace amalgam::detail {

/// Owns a mapping of shared memory.
///
/// Threads: like a plain value.
class shm_mapping {
public:
    shm_mapping() noexcept = default;
    shm_mapping(shm_mapping&& from) noexcept
        : data_(std::exchange(from.data_, nullptr)), bytes_(std::exchange(from.bytes_, 0)) {}
    shm_mapping& operator=(shm_mapping&& from) noexcept {
        std::swap(data_, from.data_);
        std::swap(bytes_, from.bytes_);
        return *this;
    }
    ~shm_mapping();

    /// Failure: an empty mapping; see errno.
    static shm_mapping of(int fd, std::size_t offset, std::size_t bytes, bool writable) noexcept;
    /// Maps the same bytes twice, back to back: data that wraps around the end of a ring is
    /// contiguous at its start address.
    static shm_mapping mirrored(int fd, std::size_t offset, std::size_t bytes) noexcept;

    explicit operator bool() const noexcept { return data_ != nullptr; }
    std::byte* data() const noexcept { return data_; }
    std::size_t bytes() const noexcept { return bytes_; }
    /// Makes a read-only mapping writable. False: the kernel refuses; see errno.
    bool allow_writing() noexcept;

private:
    shm_mapping(std::byte* data, std::size_t bytes) noexcept : data_(data), bytes_(bytes) {}

    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
};

/// Zeroed, nameless memory that lives while any process holds or maps it, so nothing is left behind
/// however its users end. Nobody can shrink it: access to a mapping of it cannot fault.
///
/// Failure: `no_memory`, also if a file size limit (RLIMIT_FSIZE) is lower; raises no signal then.
result<unique_fd> make_shm_memory(std::size_t bytes);

/// Another descriptor of memory made by make_shm_memory(), by which nobody can write or map for
/// writing. Processes of other users cannot get more from it, but root's. Failure: empty; see
/// errno.
unique_fd reopen_to_read(int fd) noexcept;

/// Ensures that touching those bytes of shared memory raises no SIGBUS for lack of memory. If the
/// system accounts for memory before it is touched (overcommit_memory 2), calls take_shm_pages();
/// else does nothing, as there is no such fault then. False: out of memory; see errno.
bool reserve_shm_pages(int fd, std::size_t offset, std::size_t bytes) noexcept;
/// Makes the kernel allocate the pages now. False: not enough memory.
bool take_shm_pages(int fd, std::size_t offset, std::size_t bytes) noexcept;

/// Prevents new writable mappings and writes by descriptor; existing mappings are unaffected.
/// False: not supported by this kernel (before 5.1).
bool forbid_new_writers(int fd) noexcept;

/// Memory of make_shm_memory() in another process, reopened by its number there. Failure: empty;
/// see errno, EXDEV if that is other memory.
unique_fd reopen_shm_memory(pid_t owner, std::uint64_t descriptor, std::uint64_t device,
                            std::uint64_t inode, std::size_t bytes, bool writable) noexcept;

/// Whether `fd`, received from a peer, is memory of exactly that size that cannot shrink.
bool is_shm_memory(int fd, std::size_t bytes) noexcept;

}  // namespace amalgam::detail
