#include "inject/run/confined_rights.hpp"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <limits>

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "inject/run/call_filter.hpp"

namespace amalgam::detail {

namespace {

using namespace std::chrono_literals;

int open_file(const char* path, int how) noexcept {
    return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, how | O_CLOEXEC));
}

/// Unmaps shared memory: writes to it would be visible to others.
bool leave_shared_memory() noexcept {
    const int maps = open_file("/proc/self/maps", O_RDONLY);
    if (maps < 0) return false;
    // Each line: "from-to rwxs …". Parsed byte by byte, as there may be any number of lines; the
    // kernel continues by address, whatever was unmapped meanwhile.
    static char part[65536];
    unsigned long from = 0, to = 0;
    unsigned field = 0, letter = 0;  // Within the line; within the rights.
    ssize_t got = 0;
    while ((got = ::read(maps, part, sizeof(part))) > 0) {
        for (ssize_t i = 0; i < got; ++i) {
            const char each = part[i];
            if (each == '\n') {
                from = to = 0;
                field = letter = 0;
            } else if (field == 0 || field == 1) {
                unsigned long& number = field == 0 ? from : to;
                if (each == '-' || each == ' ') {
                    ++field;
                } else {
                    const int digit = each >= 'a' ? each - 'a' + 10 : each - '0';
                    number = number * 16 + static_cast<unsigned long>(digit);
                }
            } else if (field == 2 && ++letter == 4) {
                if (each == 's' && ::munmap(reinterpret_cast<void*>(from), to - from) != 0) {
                    ::close(maps);
                    return false;
                }
                ++field;
            }
        }
    }
    ::close(maps);
    return got == 0;
}

/// When memory is short, the kernel kills this process before its parent.
void be_first_to_go() noexcept {
    const int file = open_file("/proc/self/oom_score_adj", O_WRONLY);
    if (file < 0) return;
    (void)!::write(file, "1000", 4);
    ::close(file);
}

std::uint64_t memory_now() noexcept {
    char text[64] = {};
    const int file = open_file("/proc/self/statm", O_RDONLY);
    if (file < 0) return 0;
    const ssize_t got = ::read(file, text, sizeof(text) - 1);
    ::close(file);
    if (got <= 0) return 0;
    return std::strtoull(text, nullptr, 10) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

void drop_capabilities() noexcept {
    __user_cap_header_struct head{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct none[2] = {};
    ::syscall(SYS_capset, &head, none);
}

/// No files, ports or foreign processes, where the kernel has Landlock: a second line of defense
/// behind seccomp.
void enter_landlock() noexcept {
    constexpr long create_ruleset = 444, restrict_self = 446;
    const long version = ::syscall(create_ruleset, nullptr, 0, 1u);
    if (version < 1) return;
    struct {
        std::uint64_t files, ports, scopes;
    } handled{};
    const int file_rights = version >= 5 ? 16 : version >= 3 ? 15 : version == 2 ? 14 : 13;
    handled.files = (std::uint64_t{1} << file_rights) - 1;
    if (version >= 4) handled.ports = 3;
    if (version >= 6) handled.scopes = 3;
    const std::size_t bytes = version >= 6 ? 24 : version >= 4 ? 16 : 8;
    const long rules = ::syscall(create_ruleset, &handled, bytes, 0u);
    if (rules < 0) return;
    ::syscall(restrict_self, rules, 0u);
    ::close(static_cast<int>(rules));
}

void set_limit(decltype(RLIMIT_AS) which, rlim_t value) noexcept {
    rlimit now{};
    ::getrlimit(which, &now);
    now.rlim_cur = now.rlim_max = std::min(value, now.rlim_max);
    ::setrlimit(which, &now);
}

void set_limits(const process_limits& limits) noexcept {
    using namespace std::chrono;
    const auto time = std::clamp<nanoseconds>(limits.time, 1ms, hours(24 * 365));
    const auto whole = duration_cast<seconds>(time);
    set_limit(RLIMIT_CPU, static_cast<rlim_t>(whole.count()) + 1);
    for (const auto each : {RLIMIT_CORE, RLIMIT_FSIZE, RLIMIT_NPROC, RLIMIT_MEMLOCK})
        set_limit(each, 0);
    const std::uint64_t has = memory_now();
    constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max() / 2;
    set_limit(RLIMIT_AS, std::min(most, has + std::min(most, limits.memory_bytes)));
    // Wall clock time, slightly later than the waiting side's own limit.
    const auto beyond = time + 100ms;
    itimerval once{};
    once.it_value.tv_sec = duration_cast<seconds>(beyond).count();
    once.it_value.tv_usec = duration_cast<microseconds>(beyond % seconds(1)).count();
    ::setitimer(ITIMER_REAL, &once, nullptr);
}

bool refuse_system_calls(int keep_fd) noexcept {
    call_filter filter = calls_of_confined_code(keep_fd);
    const auto all = filter.finish();
    const sock_fprog program{static_cast<unsigned short>(all.size()),
                             const_cast<sock_filter*>(all.data())};
    return ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace

bool give_up_rights(pid_t parent, int keep_fd, const process_limits& limits) noexcept {
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 || ::getppid() != parent) return false;
    for (int each = 1; each < NSIG; ++each)
        ::signal(each, SIG_DFL);
    be_first_to_go();
    if (!leave_shared_memory()) return false;
    set_limits(limits);
    sigset_t all;
    ::sigfillset(&all);
    ::sigprocmask(SIG_UNBLOCK, &all, nullptr);
    drop_capabilities();
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
    enter_landlock();
    return refuse_system_calls(keep_fd);
}

}  // namespace amalgam::detail
