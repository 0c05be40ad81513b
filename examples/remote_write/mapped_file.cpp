#include "mapped_file.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <amalgam/core/unique_fd.hpp>

namespace remote_write {
namespace {

[[noreturn]] void fail(const std::string& path, const char* what, int why) {
    throw std::runtime_error("the file \"" + path + "\" cannot be " + what + " (" +
                             std::strerror(why) + ")");
}

std::size_t page_bytes() {
    return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

std::size_t whole_pages(std::uint64_t bytes) {
    return static_cast<std::size_t>((bytes + page_bytes() - 1) / page_bytes() * page_bytes());
}

}  // namespace

mapped_file mapped_file::open(const std::string& path, unsigned pieces) {
    const amalgam::unique_fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat info {};
    if (!fd || ::fstat(fd.get(), &info) != 0) fail(path, "read", errno);
    if (!S_ISREG(info.st_mode)) fail(path, "read: it is not a regular file", EINVAL);
    mapped_file all;
    all.map(fd.get(), path, static_cast<std::uint64_t>(info.st_size), pieces, PROT_READ);
    return all;
}

mapped_file mapped_file::create(const std::string& path, std::uint64_t bytes) {
    const amalgam::unique_fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!fd) fail(path, "made", errno);
    // Without its space a disk that is full would show as a signal, at the first byte too many.
    const int wrong = bytes == 0 ? 0 : ::posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes));
    if (wrong != 0) fail(path, "made as large as needed", wrong);
    mapped_file all;
    all.map(fd.get(), path, bytes, 1, PROT_READ | PROT_WRITE);
    return all;
}

void mapped_file::map(int fd, const std::string& path, std::uint64_t bytes, unsigned pieces,
                      int rights) {
    const std::size_t each = whole_pages((bytes + pieces - 1) / std::max(pieces, 1u));
    for (std::uint64_t at = 0; at < bytes; at += each) {
        const auto length = static_cast<std::size_t>(std::min<std::uint64_t>(each, bytes - at));
        // One page more, which nobody may touch: no piece begins where another ends.
        void* room = ::mmap(nullptr, whole_pages(length) + page_bytes(), PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (room == MAP_FAILED) fail(path, "mapped", errno);
        pieces_.emplace_back(static_cast<std::byte*>(room), length);
        if (::mmap(room, length, rights, MAP_SHARED | MAP_FIXED, fd, static_cast<off_t>(at)) ==
            MAP_FAILED)
            fail(path, "mapped", errno);
    }
}

mapped_file::~mapped_file() {
    for (const amalgam::mutable_bytes piece : pieces_)
        ::munmap(piece.data(), whole_pages(piece.size()) + page_bytes());
}

std::uint64_t mapped_file::bytes() const noexcept {
    std::uint64_t sum = 0;
    for (const amalgam::mutable_bytes piece : pieces_)
        sum += piece.size();
    return sum;
}

std::string mapped_file::sha256() const {
    const std::unique_ptr<EVP_MD_CTX, decltype(&::EVP_MD_CTX_free)> hash(::EVP_MD_CTX_new(),
                                                                         &::EVP_MD_CTX_free);
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned length = 0;
    bool good = hash && ::EVP_DigestInit_ex(hash.get(), ::EVP_sha256(), nullptr) == 1;
    for (const amalgam::mutable_bytes piece : pieces_)
        good = good && ::EVP_DigestUpdate(hash.get(), piece.data(), piece.size()) == 1;
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
