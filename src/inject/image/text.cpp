#include "inject/image/text.hpp"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>
#include <sodium.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <amalgam/core/detail/open_folder.hpp>
#include <amalgam/core/detail/text.hpp>
#include <amalgam/core/unique_fd.hpp>

namespace amalgam::detail {

bool take_line(std::string_view& text, std::string_view& line) noexcept {
    if (text.empty()) return false;
    const std::size_t end = std::min(text.find('\n'), text.size());
    line = text.substr(0, end);
    line = trimmed(line.substr(0, line.find('#')));
    text.remove_prefix(std::min(end + 1, text.size()));
    return true;
}

bool parse_digits(std::string_view text, std::span<std::uint8_t> into) noexcept {
    std::size_t got = 0;
    const char* end = nullptr;
    return ::sodium_hex2bin(into.data(), into.size(), text.data(), text.size(), nullptr, &got,
                            &end) == 0 &&
           got == into.size() && end == text.data() + text.size();
}

bool append_lines(const std::string& path, std::string lines, unended_line last) {
    const unique_fd file(
        ::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644));
    if (!file || ::flock(file.get(), LOCK_EX) != 0) return false;
    off_t bytes = ::lseek(file.get(), 0, SEEK_END);
    char tail[512];
    const off_t from = std::max<off_t>(0, bytes - static_cast<off_t>(sizeof(tail)));
    const ssize_t got = ::pread(file.get(), tail, sizeof(tail), from);
    if (bytes < 0 || got < 0) return false;
    const std::string_view end(tail, static_cast<std::size_t>(got));
    if (!end.empty() && end.back() != '\n') {
        if (last == unended_line::is_ended) {
            lines.insert(lines.begin(), '\n');
        } else {
            bytes = from + static_cast<off_t>(end.rfind('\n') + 1);
            if (::ftruncate(file.get(), bytes) != 0) return false;
        }
    }
    const ssize_t written = ::write(file.get(), lines.data(), lines.size());
    const bool whole = written == static_cast<ssize_t>(lines.size());
    if (whole && ::fdatasync(file.get()) == 0) return true;
    // A short write says nothing in errno; it is the disk that is full.
    const int why = written >= 0 && !whole ? ENOSPC : errno;
    if (written > 0) (void)!::ftruncate(file.get(), bytes);
    errno = why;
    return false;
}

std::optional<failure> fault_of_policy_file(const std::string& path) {
    const auto open_to_all = [](const std::string& what, unsigned mode) {
        return failure{{errc::denied},
                       fmt::format("{} can be written by everybody on this host (mode {:04o}), who "
                                   "could so decide what may run here; example: chmod o-w {}",
                                   what, mode & 07777, what)};
    };
    if (const auto folder = open_folder_above(path)) return open_to_all(folder->path, folder->mode);
    struct stat about {};
    if (::stat(path.c_str(), &about) != 0) return std::nullopt;
    // Before it is opened: that would wait for the other end of a FIFO.
    if (!S_ISREG(about.st_mode))
        return failure{{errc::invalid},
                       fmt::format("{} is not a file; example: touch revoked.txt", path)};
    if ((about.st_mode & S_IWOTH) != 0) return open_to_all(path, about.st_mode);
    return std::nullopt;
}

}  // namespace amalgam::detail
