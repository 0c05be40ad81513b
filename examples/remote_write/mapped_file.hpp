#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <amalgam/core/bytes.hpp>

namespace remote_write {

/// A file as memory: read and written by page, so no more of it is in memory than fits. It must
/// not become shorter while this lives.
///
/// Threads: like a plain value.
/// Failure: the makers throw std::runtime_error with one sentence.
class mapped_file {
public:
    /// To read, in up to so many pieces that lie apart: memory that is not contiguous.
    static mapped_file open(const std::string& path, unsigned pieces = 1);
    /// To fill: a new file of this size, whose space is reserved.
    static mapped_file create(const std::string& path, std::uint64_t bytes);

    mapped_file(mapped_file&& other) noexcept { pieces_.swap(other.pieces_); }
    mapped_file& operator=(mapped_file&&) = delete;
    ~mapped_file();

    /// In order. None for an empty file.
    const std::vector<amalgam::mutable_bytes>& pieces() const noexcept { return pieces_; }
    std::uint64_t bytes() const noexcept;
    /// SHA-256 of all of it, in hexadecimal, as sha256sum prints it.
    std::string sha256() const;

private:
    mapped_file() = default;
    void map(int fd, const std::string& path, std::uint64_t bytes, unsigned pieces, int rights);

    std::vector<amalgam::mutable_bytes> pieces_;
};

}  // namespace remote_write
