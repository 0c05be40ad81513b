#include "fabric/trust/new_file.hpp"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <amalgam/core/status.hpp>

namespace amalgam::detail {
namespace {

constexpr int most_attempts = 1000;
constexpr std::chrono::milliseconds attempt_interval{10};

[[noreturn]] void cannot_write(const std::string& path) {
    const int why = errno;
    throw error(status{errc::denied, why},
                fmt::format("\"{}\" cannot be written ({})", path, std::strerror(why)));
}

[[noreturn]] void is_taken(const std::string& path) {
    throw error(errc::in_use, fmt::format("\"{}\" exists already and is not replaced without being "
                                          "told to; example: --force",
                                          path));
}

/// A file under a name of its own, deleted unless it was given its place.
class unfinished_file {
public:
    unfinished_file(const std::string& beside, unsigned mode) : path_(beside + ".XXXXXX") {
        file_.reset(::mkostemp(path_.data(), O_CLOEXEC));
        if (!file_) cannot_write(beside);
        if (::fchmod(file_.get(), mode) != 0) fail(beside);
    }
    unfinished_file(const unfinished_file&) = delete;
    unfinished_file& operator=(const unfinished_file&) = delete;
    ~unfinished_file() {
        if (!placed_) ::unlink(path_.c_str());
    }

    void write(std::string_view content, const std::string& as) {
        while (!content.empty()) {
            const ssize_t put = ::write(file_.get(), content.data(), content.size());
            if (put < 0 && errno == EINTR) continue;
            if (put < 0) fail(as);
            content.remove_prefix(static_cast<std::size_t>(put));
        }
        if (::fsync(file_.get()) != 0) fail(as);
    }

    void place(const std::string& as, bool overwrite) {
        if (overwrite) {
            placed_ = ::rename(path_.c_str(), as.c_str()) == 0;
        } else {
            // Some file systems know no such flag; a link does not replace anything, either.
            placed_ =
                ::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, as.c_str(), RENAME_NOREPLACE) == 0;
            if (!placed_ && errno == EINVAL && ::link(path_.c_str(), as.c_str()) == 0) {
                ::unlink(path_.c_str());
                placed_ = true;
            }
            if (!placed_ && errno == EEXIST) is_taken(as);
        }
        if (!placed_) cannot_write(as);
    }

private:
    [[noreturn]] void fail(const std::string& as) {
        const int why = errno;
        ::unlink(path_.c_str());
        errno = why;
        cannot_write(as);
    }

    std::string path_;
    unique_fd file_;
    bool placed_ = false;
};

std::string folder_of(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    return slash == path.npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

void write_file(const std::string& path, std::string_view content, unsigned mode, bool overwrite) {
    unfinished_file file(path, mode);
    file.write(content, path);
    file.place(path, overwrite);
    const unique_fd folder(::open(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder) ::fsync(folder.get());
}

void make_folder(const std::string& path) {
    for (std::size_t end = 0; end != path.npos;) {
        end = path.find('/', end + 1);
        const std::string part = path.substr(0, end);
        if (part.empty() || is_folder(part)) continue;
        if (::mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) cannot_write(part);
    }
    if (!is_folder(path)) {
        errno = ENOTDIR;
        cannot_write(path);
    }
}

unique_fd lock_folder(const std::string& path) {
    unique_fd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder) {
        const int why = errno;
        throw error(status{errc::not_found, why},
                    fmt::format("there is no folder \"{}\" ({}), expected one that `amalgam key "
                                "new` made",
                                path, std::strerror(why)));
    }
    // Not for ever: who holds it may be stopped.
    for (int i = 0; ::flock(folder.get(), LOCK_EX | LOCK_NB) != 0; ++i) {
        if (errno != EWOULDBLOCK && errno != EINTR) cannot_write(path);
        if (i == most_attempts)
            throw error(errc::in_use, fmt::format("the folder \"{}\" is being changed by another "
                                                  "process, which does not end",
                                                  path));
        std::this_thread::sleep_for(attempt_interval);
    }
    return folder;
}

bool is_folder(const std::string& path) noexcept {
    struct stat about {};
    return ::stat(path.c_str(), &about) == 0 && S_ISDIR(about.st_mode);
}

bool is_there(const std::string& path) noexcept {
    struct stat about {};
    return ::lstat(path.c_str(), &about) == 0;
}

}  // namespace amalgam::detail
