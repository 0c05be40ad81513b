#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <sys/stat.h>

#include <amalgam/core.hpp>

#include "protocol.hpp"

namespace remote_write {

/// One open file, read and written by the kernel rather than mapped: if somebody truncates it
/// meanwhile, that is an error, not SIGBUS.
///
/// Threads: any.
/// Failure: throws std::runtime_error with one sentence.
class local_file {
public:
    local_file(amalgam::unique_fd fd, std::string name, open_mode mode)
        : fd_(std::move(fd)), name_(std::move(name)), mode_(mode) {}
    /// Opens a local file; `replace` creates or empties it.
    static local_file open(const std::string& path, open_mode mode);

    std::uint64_t bytes() const;
    void check_mode(open_mode needed) const;
    void write(amalgam::const_bytes from, std::uint64_t offset) const;
    void sync() const;
    /// Fills `into`; it is an error if the file ends before.
    void read(amalgam::mutable_bytes into, std::uint64_t offset) const;
    /// SHA-256 of the file, in hexadecimal, as sha256sum prints it. It must be open for reading.
    std::string sha256() const;

private:
    amalgam::unique_fd fd_;
    std::string name_;
    open_mode mode_;
};

/// Throws `what`, and why the last system call failed.
[[noreturn]] void fail(const std::string& what);
std::string quoted(std::string_view name);
/// Waits until written data is on the disk.
void write_back(int fd, std::string_view name);
/// Rejects anything but a regular file.
struct stat look_at(int fd, std::string_view name);

}  // namespace remote_write
