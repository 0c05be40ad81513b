#pragma once

#include <cstddef>
#include <utility>

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

    /// Failure: an empty mapping; errno says why.
    static shm_mapping of(int fd, std::size_t offset, std::size_t bytes, bool writable) noexcept;
    /// Two views of the same bytes, one behind the other: what wraps around the end of a ring is
    /// contiguous at the address where it began.
    static shm_mapping mirrored(int fd, std::size_t offset, std::size_t bytes) noexcept;

    explicit operator bool() const noexcept { return data_ != nullptr; }
    std::byte* data() const noexcept { return data_; }
    std::size_t bytes() const noexcept { return bytes_; }
    /// A mapping for reading becomes one for writing. False: the kernel refuses; errno says why.
    bool allow_writing() noexcept;

private:
    shm_mapping(std::byte* data, std::size_t bytes) noexcept : data_(data), bytes_(bytes) {}

    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
};

/// Zeroed memory that lives as long as somebody holds or maps it and has no name anywhere, so
/// that nothing is left behind however its users end. Nobody can make it smaller: an access to
/// a mapping of it cannot fault.
///
/// Failure: `no_memory`, also where a limit of file sizes (RLIMIT_FSIZE) is lower; no signal then.
result<unique_fd> make_shm_memory(std::size_t bytes);

/// Sees to it that touching those bytes of shared memory is no SIGBUS for want of memory. Where the
/// system counts memory before it is touched (overcommit_memory 2) that is take_shm_pages(), and
/// else nothing: there is no such fault then. False: no memory; errno says why.
bool reserve_shm_pages(int fd, std::size_t offset, std::size_t bytes) noexcept;
/// Has the kernel give the pages now. False: there are not so many.
bool take_shm_pages(int fd, std::size_t offset, std::size_t bytes) noexcept;

/// From now on nobody can map it for writing, or write to it by its descriptor; mappings that
/// exist stay as they are. False: this kernel cannot (before 5.1).
bool forbid_new_writers(int fd) noexcept;

/// Whether `fd`, which came from somebody else, is memory of exactly that size and cannot shrink.
bool is_shm_memory(int fd, std::size_t bytes) noexcept;

}  // namespace amalgam::detail
