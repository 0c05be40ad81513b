#pragma once

#include <cstddef>

#include <sys/mman.h>

namespace amalgam::detail {

/// Whether this process can still map so many bytes. For libraries that end the process, or lose
/// packets, where they find no memory. Cost: two system calls.
inline bool has_spare_memory(std::size_t bytes) noexcept {
    void* const probe =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (probe == MAP_FAILED) return false;
    ::munmap(probe, bytes);
    return true;
}

}  // namespace amalgam::detail
