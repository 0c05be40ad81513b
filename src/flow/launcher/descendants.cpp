#include "flow/launcher/descendants.hpp"

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <ctime>
#include <string>
#include <string_view>

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/status.hpp>
#include <amalgam/core/unique_fd.hpp>

namespace amalgam::detail {
namespace {

/// The parent of `pid` according to "/proc/PID/stat"; 0 if it is gone or a zombie.
pid_t living_parent(std::string_view pid) noexcept {
    char path[64] = "/proc/";
    if (pid.size() > 20) return 0;
    pid.copy(path + 6, pid.size());
    std::string_view("/stat").copy(path + 6 + pid.size(), 5);
    unique_fd file(::open(path, O_RDONLY | O_CLOEXEC));
    if (!file) return 0;
    char text[512];
    ssize_t got = ::read(file.get(), text, sizeof text);
    if (got <= 0) return 0;
    // "PID (any name, even with ')') STATE PPID …"
    std::string_view stat(text, static_cast<std::size_t>(got));
    std::size_t close = stat.rfind(") ");
    if (close == std::string_view::npos || close + 4 >= stat.size() || stat[close + 2] == 'Z')
        return 0;
    pid_t parent = 0;
    std::from_chars(stat.data() + close + 4, stat.data() + stat.size(), parent);
    return parent;
}

std::size_t kill_children() noexcept {
    DIR* all = ::opendir("/proc");
    if (all == nullptr) return 0;
    std::size_t killed = 0;
    while (const dirent* entry = ::readdir(all)) {
        std::string_view name(entry->d_name);
        if (name.find_first_not_of("0123456789") != std::string_view::npos) continue;
        if (living_parent(name) != ::getpid()) continue;
        if (::kill(std::atoi(entry->d_name), SIGKILL) == 0) ++killed;
    }
    ::closedir(all);
    return killed;
}

/// False when no child is left.
bool reap_all() noexcept {
    for (;;) {
        pid_t ended = ::waitpid(-1, nullptr, WNOHANG);
        if (ended == 0) return true;
        if (ended < 0 && errno != EINTR) return false;
    }
}

}  // namespace

void adopt_orphans() {
    if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
        throw error(status{errc::unsupported, errno},
                    "the kernel does not let the launcher adopt orphaned processes, which could be "
                    "left behind; expected Linux 3.4 or later");
}

std::size_t kill_descendants(std::chrono::milliseconds limit) noexcept {
    auto deadline = std::chrono::steady_clock::now() + limit;
    std::size_t killed = 0;
    // A killed child's children become ours only once it is gone, hence the rounds.
    while (reap_all()) {
        killed += kill_children();
        if (std::chrono::steady_clock::now() >= deadline) break;
        timespec pause{0, 2'000'000};
        ::nanosleep(&pause, nullptr);
    }
    return killed;
}

}  // namespace amalgam::detail
