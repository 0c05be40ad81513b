#include "fabric/transports/shm/memory/process.hpp"

#include <array>
#include <cstdio>
#include <string_view>

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace amalgam::detail {

unique_fd watch_process(pid_t pid) noexcept {
    if (pid <= 0) return {};
    return unique_fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

bool has_process_ended(int watched) noexcept {
    pollfd look{watched, POLLIN, 0};
    return ::poll(&look, 1, 0) > 0;
}

bool is_process_stopped(pid_t pid) noexcept {
    char path[32];
    std::snprintf(path, sizeof path, "/proc/%ld/stat", static_cast<long>(pid));
    const unique_fd file(pid > 0 ? ::open(path, O_RDONLY | O_CLOEXEC) : -1);
    if (!file) return false;
    std::array<char, 256> text;  // The state follows a name of up to 64 bytes.
    const ssize_t bytes = ::read(file.get(), text.data(), text.size());
    const std::string_view line(text.data(), bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
    const std::size_t name_ends = line.rfind(") ");
    if (name_ends == line.npos || name_ends + 2 >= line.size()) return false;
    // Stopped by a signal, by a debugger, or in an uninterruptible system call.
    return std::string_view("TtD").find(line[name_ends + 2]) != std::string_view::npos;
}

}  // namespace amalgam::detail
