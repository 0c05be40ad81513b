#pragma once

#include <cstddef>
#include <system_error>

#include <sys/mman.h>
#include <unistd.h>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/unique_fd.hpp>

namespace amalgam::detail {

/// For tests: a memory file, mapped shared, that shrinks under its mapping.
class truncated_file {
public:
    explicit truncated_file(std::size_t bytes, int rights = PROT_READ | PROT_WRITE)
        : file_(::memfd_create("a-users-file", MFD_CLOEXEC)) {
        truncate(bytes);
        void* at = ::mmap(nullptr, bytes, rights, MAP_SHARED, file_.get(), 0);
        if (at == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
        mapped_ = {static_cast<std::byte*>(at), bytes};
    }
    truncated_file(const truncated_file&) = delete;
    ~truncated_file() { ::munmap(mapped_.data(), mapped_.size()); }

    mutable_bytes bytes() const noexcept { return mapped_; }
    void truncate(std::size_t bytes) {
        if (::ftruncate(file_.get(), static_cast<off_t>(bytes)) != 0)
            throw std::system_error(errno, std::generic_category(), "ftruncate");
    }

private:
    unique_fd file_;
    mutable_bytes mapped_;
};

}  // namespace amalgam::detail
