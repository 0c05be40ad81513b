#include "inject/run/confined_run.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/unique_fd.hpp>
#include <amalgam/rpc/call_context.hpp>
#include <amalgam/tasks/ult.hpp>

#include "inject/limits.hpp"
#include "inject/protocol/report_failure.hpp"
#include "inject/run/confined_rights.hpp"
#include "inject/run/forking_thread.hpp"

namespace amalgam::detail {

namespace {

using namespace std::chrono_literals;

constexpr int answer_fd = 3;  // The only descriptor of a confined process.

/// Sent first: whether it will run the code.
enum class beginning : std::uint8_t { confined = 1, not_confined = 2 };

/// Precedes the answer.
struct answer_head {
    std::uint32_t failed = 0;
    std::uint32_t reserved = 0;
    std::uint64_t bytes = 0;
};

// ---- in the confined process

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

void begin_with(beginning how) noexcept {
    write_all(&how, sizeof(how));
}

/// Exercises what injected code needs most and another thread's lock may block, if it was held at
/// the fork. Then this waits forever, and the parent makes another process.
void try_what_is_needed() {
    try {
        throw 0;
    } catch (int) {
    }
    ::free(::malloc(1000));
}

/// Input of the forked process.
struct confined_task {
    const confined_work& work;
    const const_bytes payload;
    const std::size_t alignment;
    const confined_limits& limits;
    const int answer_to;
    const pid_t parent = ::getpid();
};

[[noreturn]] void be_confined(void* context) noexcept {
    const auto& task = *static_cast<const confined_task*>(context);
    if (::dup2(task.answer_to, answer_fd) < 0) ::_exit(1);
    ::syscall(SYS_close_range, answer_fd + 1, ~0u, 0);
    for (const int each : {0, 1, 2})
        ::close(each);
    try_what_is_needed();
    // The message may be in shared memory.
    void* own = nullptr;
    const const_bytes payload = task.payload;
    if (::posix_memalign(&own, std::max(task.alignment, sizeof(void*)), payload.size() + 1) != 0)
        ::_exit(1);
    if (!payload.empty()) std::memcpy(own, payload.data(), payload.size());
    if (!give_up_rights(task.parent, answer_fd, {task.limits.time, task.limits.memory_bytes})) {
        begin_with(beginning::not_confined);
        ::_exit(1);
    }
    begin_with(beginning::confined);
    report_failure(
        [&] {
            const const_bytes result = task.work(own, payload.size());
            answer_with(false, result.data(), result.size());
        },
        [](const char* why) { answer_with(true, why, ::strnlen(why, limits::max_reason_bytes)); });
    ::_exit(0);
}

// ---- in the parent

class confined_process {
public:
    explicit confined_process(pid_t pid) noexcept : pid_(pid) {}
    confined_process(const confined_process&) = delete;
    confined_process& operator=(const confined_process&) = delete;
    ~confined_process() {
        if (pid_ > 0) ::kill(pid_, SIGKILL);
        (void)wait();
    }
    /// Returns its wait status.
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

confined_end end_without_answer(int how) {
    if (WIFSIGNALED(how) && (WTERMSIG(how) == SIGALRM || WTERMSIG(how) == SIGXCPU))
        return {errc::timed_out, "it took longer than this target allows", {}};
    if (WIFSIGNALED(how))
        return {errc::handler_failed,
                fmt::format("it was ended by signal {} ({})", WTERMSIG(how),
                            ::strsignal(WTERMSIG(how))),
                {}};
    return {errc::handler_failed,
            fmt::format("its process ended with {}", WIFEXITED(how) ? WEXITSTATUS(how) : -1),
            {}};
}

/// Parses what follows the beginning.
confined_end end_of(std::vector<std::byte> all, int how) {
    answer_head head;
    if (all.size() < sizeof(head)) return end_without_answer(how);
    std::memcpy(&head, all.data(), sizeof(head));
    all.erase(all.begin(), all.begin() + sizeof(head));
    if (all.size() != head.bytes) return end_without_answer(how);
    if (head.failed == 0) return {errc::ok, {}, std::move(all)};
    all.resize(std::min(all.size(), limits::max_reason_bytes));
    return {errc::handler_failed, {reinterpret_cast<const char*>(all.data()), all.size()}, {}};
}

/// One process. Empty: it did not start in time, and none of the code was run.
std::optional<confined_end> try_once(const confined_work& work, const_bytes payload,
                                     std::size_t alignment, const confined_limits& limits,
                                     std::chrono::nanoseconds time_limit) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
        return confined_end{
            errc::no_memory, fmt::format("cannot create a pipe: {}", std::strerror(errno)), {}};
    const unique_fd from(ends[0]);
    unique_fd to(ends[1]);
    ::fcntl(from.get(), F_SETFL, O_NONBLOCK);
    confined_task task{work, payload, alignment, limits, to.get()};
    const pid_t pid = fork_apart(be_confined, &task);
    if (pid < 0)
        return confined_end{
            errc::no_memory,
            fmt::format("cannot create a process to run it in: {}", std::strerror(-pid)),
            {}};
    confined_process child(pid);
    to.reset();

    using clock = std::chrono::steady_clock;
    bool begun = false;
    auto until = clock::now() + time_limit;
    std::vector<std::byte> all;
    std::array<std::byte, 65536> part;
    const call_context* const call = call_context::try_current();
    for (auto pause = 20us;;) {
        const ssize_t got = ::read(from.get(), part.data(), part.size());
        if (got == 0) break;
        if (got > 0) {
            all.insert(all.end(), part.begin(), part.begin() + got);
            if (!begun) {
                if (all.front() != std::byte{static_cast<std::uint8_t>(beginning::confined)})
                    return confined_end{
                        errc::unsupported,
                        "this system cannot confine it, expected Linux with seccomp and /proc",
                        {}};
                all.erase(all.begin());
                begun = true;
                until = clock::now() + limits.time;
            }
            if (all.size() > limits.result_bytes + sizeof(answer_head))
                return confined_end{
                    errc::too_large, "its result is longer than this target accepts", {}};
            continue;
        }
        if (call != nullptr && call->canceled())
            return confined_end{errc::canceled, "it was canceled", {}};
        if (clock::now() >= until) {
            if (!begun) return std::nullopt;
            return confined_end{errc::timed_out, "it took longer than this target allows", {}};
        }
        this_task::sleep_for(pause);
        pause = std::min(pause * 2, 1000us);
    }
    return end_of(std::move(all), child.wait());
}

}  // namespace

confined_end run_confined(const confined_work& work, const_bytes payload, std::size_t alignment,
                          const confined_limits& limits) {
    std::chrono::nanoseconds time_limit = 250ms;
    for (int attempts = 6; attempts != 0; --attempts, time_limit *= 2)
        if (auto end = try_once(work, payload, alignment, limits, time_limit))
            return std::move(*end);
    return {errc::overloaded,
            "its process does not start: a thread of this process holds a lock that it needs, or "
            "no processor is free",
            {}};
}

}  // namespace amalgam::detail
