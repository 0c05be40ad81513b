#include "directory/server/record.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <amalgam/core/status.hpp>
#include <amalgam/core/unique_fd.hpp>

#include "directory/limits.hpp"

namespace amalgam::detail {

namespace {
constexpr const char* first_line = "amalgam directory 2\n";

/// Specific to the network namespace, because names in shared memory are. The inode number of a
/// namespace may be reused; its cookie, of Linux 5.14 and later, is not.
std::string name_of_this_host() {
    constexpr int netns_cookie = 71;  // SO_NETNS_COOKIE
    std::uint64_t cookie = 0;
    socklen_t bytes = sizeof cookie;
    const unique_fd any(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (any && ::getsockopt(any.get(), SOL_SOCKET, netns_cookie, &cookie, &bytes) == 0)
        return fmt::format("directory-{:x}", cookie);
    struct stat host {};
    (void)::stat("/proc/self/ns/net", &host);
    return fmt::format("directory-of-{}", host.st_ino);
}

bool is_ours(const struct stat& what) {
    return what.st_uid == ::geteuid() && (what.st_mode & 077) == 0;
}

[[noreturn]] void refuse(const std::string& path, const char* what) {
    throw error({errc::denied, errno},
                fmt::format("cannot save how this directory was started: {} {} ({})", path, what,
                            std::strerror(errno)));
}
}  // namespace

directory_record::directory_record()
    : directory_record(fmt::format("/dev/shm/amalgam-{}", ::geteuid()), name_of_this_host()) {}

directory_record::directory_record(std::string folder, std::string name)
    : folder_(std::move(folder)), name_(std::move(name)) {}

void directory_record::keep(const std::vector<std::string>& words) const {
    std::string text = first_line;
    const auto invalid = [&](const std::string& why) {
        forget();
        return error(errc::invalid,
                     fmt::format("cannot save how this directory was started: {}", why));
    };
    for (const std::string& each : words) {
        if (each.find('\n') != std::string::npos)
            throw invalid(fmt::format("\"{}\" has more than one line", each));
        text += each + '\n';
    }
    if (text.size() > limits::max_record_bytes)
        throw invalid(fmt::format("its options have more than {} bytes", limits::max_record_bytes));
    if (::mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST)
        refuse(folder_, "cannot be created");
    const unique_fd folder(
        ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat its {};
    if (!folder || ::fstat(folder.get(), &its) != 0) refuse(folder_, "is not a folder");
    errno = EPERM;
    if (!is_ours(its)) refuse(folder_, "belongs to another user, or is open to others");
    const std::string fresh = fmt::format("{}.{}", name_, ::getpid());
    const unique_fd file(::openat(folder.get(), fresh.c_str(),
                                  O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
    const bool written =
        file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
    if (!written || ::renameat(folder.get(), fresh.c_str(), folder.get(), name_.c_str()) != 0) {
        const int why = errno;
        for (const std::string& each : {fresh, name_})
            (void)::unlinkat(folder.get(), each.c_str(), 0);
        errno = why;
        refuse(path(), "cannot be written");
    }
}

std::optional<std::vector<std::string>> directory_record::read() const {
    const unique_fd folder(
        ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat its {};
    if (!folder || ::fstat(folder.get(), &its) != 0 || !is_ours(its)) return std::nullopt;
    const unique_fd file(
        ::openat(folder.get(), name_.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (!file || ::fstat(file.get(), &its) != 0 || !is_ours(its) || !S_ISREG(its.st_mode))
        return std::nullopt;
    std::string text(limits::max_record_bytes, '\0');
    const ssize_t got = ::read(file.get(), text.data(), text.size());
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (!text.starts_with(first_line) || !text.ends_with('\n')) return std::nullopt;
    std::vector<std::string> lines;
    for (std::size_t at = std::strlen(first_line); at < text.size();) {
        const std::size_t end = text.find('\n', at);
        lines.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return lines;
}

void directory_record::forget() const noexcept {
    (void)::unlink(path().c_str());
}

}  // namespace amalgam::detail
