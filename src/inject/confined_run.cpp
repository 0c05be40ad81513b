#include "inject/confined_run.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/unique_fd.hpp>
#include <amalgam/rpc/call_context.hpp>
#include <amalgam/tasks/ult.hpp>

#include "inject/tell_failure.hpp"

namespace amalgam::detail {

namespace {

constexpr int answer_fd = 3;  // The only one that a confined process has.

/// In front of what it answers.
struct answer_head {
    std::uint32_t failed = 0;
    std::uint32_t reserved = 0;
    std::uint64_t bytes = 0;
};

// ---- in the confined process

#if defined(__aarch64__)
constexpr std::uint32_t this_audit_architecture = AUDIT_ARCH_AARCH64;
#else
constexpr std::uint32_t this_audit_architecture = AUDIT_ARCH_X86_64;
#endif

/// Memory that others have, too: what is written there would be seen.
void leave_shared_memory() noexcept {
    const int maps = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (maps < 0) ::_exit(1);
    // Read as a whole first: it changes while memory goes. No memory may be asked for.
    static char text[1 << 20];
    std::size_t length = 0;
    for (ssize_t got = 1; got > 0 && length + 1 < sizeof(text); length += got > 0 ? got : 0)
        got = ::read(maps, text + length, sizeof(text) - 1 - length);
    ::close(maps);
    if (length + 1 >= sizeof(text)) ::_exit(1);
    text[length] = 0;
    for (char* line = text; *line != 0;) {
        char* const end = std::strchr(line, '\n');
        unsigned long from = 0, to = 0;
        char rights[5] = {};
        if (std::sscanf(line, "%lx-%lx %4s", &from, &to, rights) == 3 && rights[3] == 's')
            ::munmap(reinterpret_cast<void*>(from), to - from);
        if (end == nullptr) return;
        line = end + 1;
    }
}

/// From here on the system does little for this process.
bool refuse_system_calls() noexcept {
    constexpr auto load = [](std::size_t offset) {
        return sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset));
    };
    constexpr auto answer = [](std::uint32_t what) {
        return sock_filter BPF_STMT(BPF_RET | BPF_K, what);
    };
    constexpr auto argument = [](int which) {
        return offsetof(seccomp_data, args) + 8 * static_cast<std::size_t>(which);
    };
    const auto unless = [](std::uint32_t number, std::uint8_t skip) {
        return sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, skip);
    };
    std::vector<sock_filter> filter{
        load(offsetof(seccomp_data, arch)), unless(this_audit_architecture, 1),
        sock_filter BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0), answer(SECCOMP_RET_KILL_PROCESS),
        load(offsetof(seccomp_data, nr))};
    for (const long each : {__NR_exit, __NR_exit_group, __NR_rt_sigreturn, __NR_munmap, __NR_mremap,
                            __NR_brk, __NR_madvise, __NR_futex, __NR_clock_gettime, __NR_getrandom,
                            __NR_gettimeofday, __NR_sched_yield}) {
        filter.push_back(unless(static_cast<std::uint32_t>(each), 1));
        filter.push_back(answer(SECCOMP_RET_ALLOW));
    }
    // write() to whom it answers; memory that is not to be run.
    filter.push_back(unless(__NR_write, 4));
    filter.push_back(load(argument(0)));
    filter.push_back(unless(answer_fd, 1));
    filter.push_back(answer(SECCOMP_RET_ALLOW));
    filter.push_back(answer(SECCOMP_RET_ERRNO | EPERM));
    for (const long each : {__NR_mmap, __NR_mprotect}) {
        filter.push_back(unless(static_cast<std::uint32_t>(each), 4));
        filter.push_back(load(argument(2)));
        filter.push_back(sock_filter BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 1, 0));
        filter.push_back(answer(SECCOMP_RET_ALLOW));
        filter.push_back(answer(SECCOMP_RET_ERRNO | EPERM));
    }
    filter.push_back(answer(SECCOMP_RET_ERRNO | EPERM));
    const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
    return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

void write_all(const void* data, std::size_t bytes) noexcept {
    for (const auto* at = static_cast<const char*>(data); bytes != 0;) {
        const ssize_t wrote = ::write(answer_fd, at, bytes);
        if (wrote <= 0) ::_exit(1);
        at += wrote;
        bytes -= static_cast<std::size_t>(wrote);
    }
}

void answer_with(bool failed, const void* data, std::size_t bytes) noexcept {
    const answer_head head{failed ? 1u : 0u, 0, bytes};
    write_all(&head, sizeof(head));
    write_all(data, bytes);
}

[[noreturn]] void be_confined(const confined_work& work, const_bytes payload, std::size_t alignment,
                              const confined_limits& limits, int answer_to) noexcept {
    if (::dup2(answer_to, answer_fd) < 0) ::_exit(1);
    ::syscall(SYS_close_range, answer_fd + 1, ~0u, 0);
    for (const int each : {0, 1, 2})
        ::close(each);
    sigset_t none;  // A crash is to end it, whatever the program has for that.
    ::sigfillset(&none);
    ::sigprocmask(SIG_UNBLOCK, &none, nullptr);
    for (const int each : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP})
        ::signal(each, SIG_DFL);
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(limits.time).count();
    const rlimit cpu{static_cast<rlim_t>(seconds), static_cast<rlim_t>(seconds + 1)}, no{0, 0};
    ::setrlimit(RLIMIT_CPU, &cpu);
    ::setrlimit(RLIMIT_CORE, &no);
    ::setrlimit(RLIMIT_FSIZE, &no);
    // The message may lie in shared memory.
    void* own = nullptr;
    if (::posix_memalign(&own, std::max(alignment, sizeof(void*)), payload.size() + 1) != 0)
        ::_exit(1);
    if (!payload.empty()) std::memcpy(own, payload.data(), payload.size());
    leave_shared_memory();
    if (!refuse_system_calls()) ::_exit(1);
    tell_failure(
        [&] {
            const const_bytes result = work(own, payload.size());
            answer_with(false, result.data(), result.size());
        },
        [](const char* why) { answer_with(true, why, std::strlen(why)); });
    ::_exit(0);
}

// ---- in the process that wants it

class confined_process {
public:
    explicit confined_process(pid_t pid) noexcept : pid_(pid) {}
    confined_process(const confined_process&) = delete;
    confined_process& operator=(const confined_process&) = delete;
    ~confined_process() {
        if (pid_ > 0) ::kill(pid_, SIGKILL);
        (void)wait();
    }
    /// How it has ended.
    int wait() noexcept {
        int how = 0;
        if (pid_ > 0)
            while (::waitpid(pid_, &how, 0) == -1 && errno == EINTR) {
            }
        pid_ = -1;
        return how;
    }

private:
    pid_t pid_;
};

std::string sentence_of(int how) {
    if (WIFSIGNALED(how))
        return fmt::format("it was ended by signal {} ({})", WTERMSIG(how),
                           ::strsignal(WTERMSIG(how)));
    return fmt::format("its process ended with {}", WIFEXITED(how) ? WEXITSTATUS(how) : -1);
}

}  // namespace

confined_end run_confined(const confined_work& work, const_bytes payload, std::size_t alignment,
                          const confined_limits& limits) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
        return {errc::no_memory, fmt::format("no pipe: {}", std::strerror(errno)), {}};
    const unique_fd from(ends[0]);
    unique_fd to(ends[1]);
    ::fcntl(from.get(), F_SETFL, O_NONBLOCK);
    const pid_t pid = ::fork();
    if (pid == 0) be_confined(work, payload, alignment, limits, to.get());
    if (pid < 0)
        return {
            errc::no_memory, fmt::format("no process to run it in: {}", std::strerror(errno)), {}};
    confined_process child(pid);
    to.reset();

    const auto until = std::chrono::steady_clock::now() + limits.time;
    std::vector<std::byte> all;
    std::array<std::byte, 65536> part;
    const call_context* const call = call_context::try_current();
    for (auto pause = std::chrono::microseconds(20);;) {
        const ssize_t got = ::read(from.get(), part.data(), part.size());
        if (got == 0) break;
        if (got > 0) {
            all.insert(all.end(), part.begin(), part.begin() + got);
            if (all.size() > limits.result_bytes + sizeof(answer_head))
                return {errc::too_large, "its result is longer than this target takes", {}};
            continue;
        }
        if (call != nullptr && call->canceled()) return {errc::canceled, "it was canceled", {}};
        if (std::chrono::steady_clock::now() >= until)
            return {errc::timed_out, "it took longer than this target lets it", {}};
        this_task::sleep_for(pause);
        pause = std::min(pause * 2, std::chrono::microseconds(1000));
    }
    const int how = child.wait();
    answer_head head;
    if (all.size() < sizeof(head)) return {errc::handler_failed, sentence_of(how), {}};
    std::memcpy(&head, all.data(), sizeof(head));
    all.erase(all.begin(), all.begin() + sizeof(head));
    if (all.size() != head.bytes) return {errc::handler_failed, sentence_of(how), {}};
    if (head.failed == 0) return {errc::ok, {}, std::move(all)};
    return {errc::handler_failed, {reinterpret_cast<const char*>(all.data()), all.size()}, {}};
}

}  // namespace amalgam::detail
