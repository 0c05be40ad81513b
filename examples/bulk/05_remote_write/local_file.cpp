#include "local_file.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

namespace remote_write {

void fail(const std::string& what) {
    throw std::runtime_error(what + " (" + std::strerror(errno) + ")");
}

std::string quoted(std::string_view name) {
    return "\"" + std::string(name) + "\"";
}

void write_back(int fd, std::string_view name) {
    while (::fsync(fd) != 0) {
        if (errno != EINTR) fail("the file " + quoted(name) + " cannot be flushed to the disk");
    }
}

struct stat look_at(int fd, std::string_view name) {
    struct stat info {};
    if (::fstat(fd, &info) != 0) fail("the file " + quoted(name) + " cannot be examined");
    if (!S_ISREG(info.st_mode))
        throw std::runtime_error(quoted(name) + " is not a regular file, expected one");
    return info;
}

local_file local_file::open(const std::string& path, open_mode mode) {
    const bool reads = mode == open_mode::read;
    const int flags = reads ? O_RDONLY : O_RDWR | O_CREAT | O_TRUNC;
    amalgam::unique_fd fd(::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0644));
    if (!fd) fail("the file " + quoted(path) + " cannot be " + (reads ? "read" : "created"));
    look_at(fd.get(), path);
    return {std::move(fd), path, mode};
}

std::uint64_t local_file::bytes() const {
    return static_cast<std::uint64_t>(look_at(fd_.get(), name_).st_size);
}

void local_file::check_mode(open_mode needed) const {
    if (mode_ == needed) return;
    throw std::runtime_error("the file " + quoted(name_) + " is open to " +
                             (mode_ == open_mode::read ? "read" : "write") +
                             ", expected it to be opened the other way");
}

void local_file::write(amalgam::const_bytes from, std::uint64_t offset) const {
    while (!from.empty()) {
        const ssize_t done =
            ::pwrite(fd_.get(), from.data(), from.size(), static_cast<off_t>(offset));
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) fail("the file " + quoted(name_) + " cannot be written");
        from = from.subspan(static_cast<std::size_t>(done));
        offset += static_cast<std::uint64_t>(done);
    }
}

void local_file::sync() const {
    write_back(fd_.get(), name_);
}

void local_file::read(amalgam::mutable_bytes into, std::uint64_t offset) const {
    while (!into.empty()) {
        const ssize_t done =
            ::pread(fd_.get(), into.data(), into.size(), static_cast<off_t>(offset));
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) fail("the file " + quoted(name_) + " cannot be read");
        if (done == 0)
            throw std::runtime_error("the file " + quoted(name_) +
                                     " became shorter while it was read");
        into = into.subspan(static_cast<std::size_t>(done));
        offset += static_cast<std::uint64_t>(done);
    }
}

std::string local_file::sha256() const {
    const std::unique_ptr<EVP_MD_CTX, decltype(&::EVP_MD_CTX_free)> hash(::EVP_MD_CTX_new(),
                                                                         &::EVP_MD_CTX_free);
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned length = 0;
    bool good = hash && ::EVP_DigestInit_ex(hash.get(), ::EVP_sha256(), nullptr) == 1;
    std::vector<std::byte> some(chunk_bytes);
    const std::uint64_t all = bytes();
    for (std::uint64_t at = 0; good && at < all; at += some.size()) {
        some.resize(static_cast<std::size_t>(std::min<std::uint64_t>(some.size(), all - at)));
        read(some, at);
        good = ::EVP_DigestUpdate(hash.get(), some.data(), some.size()) == 1;
    }
    good = good && ::EVP_DigestFinal_ex(hash.get(), digest.data(), &length) == 1;
    if (!good) throw std::runtime_error("libcrypto cannot compute SHA-256 here");

    std::string text;
    for (unsigned i = 0; i < length; ++i) {
        text += "0123456789abcdef"[digest[i] >> 4];
        text += "0123456789abcdef"[digest[i] & 15];
    }
    return text;
}

}  // namespace remote_write
