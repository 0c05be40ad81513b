#include "open_files.hpp"

#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace remote_write {
namespace {

void check_name(std::string_view name) {
    const bool plain = !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
                       name.find('/') == name.npos && name.find('\0') == name.npos;
    if (!plain)
        throw std::runtime_error("the name " + quoted(name) +
                                 " does not name a file in the server's directory, expected one "
                                 "without slashes; example: results.dat");
}

}  // namespace

open_files::open_files(const std::string& directory)
    : directory_(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (!directory_)
        fail("the directory " + quoted(directory) + " cannot be opened, expected one to serve");
}

amalgam::unique_fd open_files::open_in_directory(std::string_view name, int flags) const {
    check_name(name);
    // Non-blocking: somebody may have put a pipe there, which would block a disk stream forever.
    amalgam::unique_fd fd(::openat(directory_.get(), std::string(name).c_str(),
                                   flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644));
    if (!fd) fail("the file " + quoted(name) + " cannot be opened");
    return fd;
}

opened_file open_files::open(const amalgam::peer& who, std::string_view name, open_mode mode) {
    if (mode != open_mode::read && mode != open_mode::replace)
        throw std::runtime_error("the mode for opening " + quoted(name) +
                                 " is not known, expected read or replace");
    amalgam::unique_fd fd =
        open_in_directory(name, mode == open_mode::read ? O_RDONLY : O_WRONLY | O_CREAT);
    opened_file result;
    result.bytes = static_cast<std::uint64_t>(look_at(fd.get(), name).st_size);
    if (mode == open_mode::replace) {  // Only after the check.
        if (::ftruncate(fd.get(), 0) != 0) fail("the file " + quoted(name) + " cannot be emptied");
        result.bytes = 0;
    }
    auto file = std::make_shared<const local_file>(std::move(fd), std::string(name), mode);

    const std::lock_guard hold(lock_);
    if (open_.size() >= max_open)
        throw std::runtime_error("the server has " + std::to_string(max_open) +
                                 " files open, which is its limit; close some");
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
        throw std::runtime_error("this client has no open file with the handle " +
                                 std::to_string(handle) + ", expected one that open returned");
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
    std::shared_ptr<const local_file> closed;  // Destroyed after the lock.
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
