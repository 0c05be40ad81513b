#include "open_files.hpp"

#include <cerrno>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace remote_write {
namespace {

[[noreturn]] void fail(const std::string& what) {
    throw std::runtime_error(what + " (" + std::strerror(errno) + ")");
}

std::string quoted(std::string_view name) {
    return "\"" + std::string(name) + "\"";
}

void check_name(std::string_view name) {
    const bool plain = !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
                       name.find('/') == name.npos && name.find('\0') == name.npos;
    if (!plain)
        throw std::runtime_error("the name " + quoted(name) +
                                 " is none of a file in the server's directory, expected one "
                                 "without slashes; example: results.dat");
}

void write_back(int fd, std::string_view name) {
    while (::fsync(fd) != 0) {
        if (errno != EINTR) fail("the file " + quoted(name) + " cannot be brought to the disk");
    }
}

struct stat look_at(int fd, std::string_view name) {
    struct stat info {};
    if (::fstat(fd, &info) != 0) fail("the file " + quoted(name) + " cannot be looked at");
    if (!S_ISREG(info.st_mode))
        throw std::runtime_error(quoted(name) + " is not a regular file, expected one");
    return info;
}

}  // namespace

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

open_files::open_files(const std::string& directory)
    : directory_(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (!directory_)
        fail("the directory " + quoted(directory) + " cannot be opened, expected one to serve");
}

amalgam::unique_fd open_files::open_in_directory(std::string_view name, int flags) const {
    check_name(name);
    // Not blocking: somebody may have put a pipe there, which would hold a disk stream for ever.
    amalgam::unique_fd fd(::openat(directory_.get(), std::string(name).c_str(),
                                   flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644));
    if (!fd) fail("the file " + quoted(name) + " cannot be opened");
    return fd;
}

opened_file open_files::open(const amalgam::peer& who, std::string_view name, open_mode mode) {
    if (mode != open_mode::read && mode != open_mode::replace)
        throw std::runtime_error("the mode to open " + quoted(name) +
                                 " with is not known, expected read or replace");
    amalgam::unique_fd fd =
        open_in_directory(name, mode == open_mode::read ? O_RDONLY : O_WRONLY | O_CREAT);
    opened_file result;
    result.bytes = static_cast<std::uint64_t>(look_at(fd.get(), name).st_size);
    if (mode == open_mode::replace) {  // Only now: before, it might have been something else.
        if (::ftruncate(fd.get(), 0) != 0) fail("the file " + quoted(name) + " cannot be emptied");
        result.bytes = 0;
    }
    auto file = std::make_shared<const local_file>(std::move(fd), std::string(name), mode);

    const std::lock_guard hold(lock_);
    if (open_.size() >= max_open)
        throw std::runtime_error("the server has " + std::to_string(max_open) +
                                 " files open, which is its limit: close some");
    result.handle = ++last_handle_;
    open_.emplace(result.handle, entry{who, std::move(file)});
    return result;
}

file_info open_files::stat(std::string_view name) const {
    const amalgam::unique_fd fd = open_in_directory(name, O_RDONLY);
    const struct stat info = look_at(fd.get(), name);
    return {static_cast<std::uint64_t>(info.st_size),
            static_cast<std::int64_t>(info.st_mtim.tv_sec)};
}

std::unordered_map<std::uint64_t, open_files::entry>::iterator open_files::owned(
    const amalgam::peer& who, std::uint64_t handle) {
    const auto found = open_.find(handle);
    if (found == open_.end() || found->second.owner != who)
        throw std::runtime_error("this client has no file open by the handle " +
                                 std::to_string(handle) + ", expected what open gave it");
    return found;
}

std::shared_ptr<const local_file> open_files::find(const amalgam::peer& who, std::uint64_t handle) {
    const std::lock_guard hold(lock_);
    return owned(who, handle)->second.file;
}

void open_files::sync(const amalgam::peer& who, std::uint64_t handle) {
    find(who, handle)->sync();
    write_back(directory_.get(), ".");
}

void open_files::close(const amalgam::peer& who, std::uint64_t handle) {
    std::shared_ptr<const local_file> closed;  // Ends after the lock.
    const std::lock_guard hold(lock_);
    const auto found = owned(who, handle);
    closed = std::move(found->second.file);
    open_.erase(found);
}

void open_files::close_all_of(const amalgam::peer& who) {
    std::vector<std::shared_ptr<const local_file>> closed;
    const std::lock_guard hold(lock_);
    std::erase_if(open_, [&](auto& each) {
        if (each.second.owner != who) return false;
        closed.push_back(std::move(each.second.file));
        return true;
    });
}

}  // namespace remote_write
