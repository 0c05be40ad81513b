#include "conformance/child_process.hpp"

#include <cerrno>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace amalgam::conformance {
namespace {

[[noreturn]] void throw_errno(const char* doing) {
    throw std::system_error(errno, std::generic_category(), doing);
}

/// Closes all descriptors but standard ones and `keep`.
void drop_inherited_descriptors(int keep) {
    if (keep > 3) ::syscall(SYS_close_range, 3u, static_cast<unsigned>(keep - 1), 0u);
    ::syscall(SYS_close_range, static_cast<unsigned>(keep < 3 ? 3 : keep + 1), ~0u, 0u);
}

void die_with_parent(pid_t parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    // The parent may have died before the request took effect.
    if (::getppid() != parent) ::_exit(126);
}

/// Number of failed expectations in the running test; a child starts with its parent's.
int failures_so_far() {
    const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
    if (test == nullptr) return 0;
    int failed = 0;
    for (int i = 0; i < test->result()->total_part_count(); ++i)
        failed += test->result()->GetTestPartResult(i).failed() ? 1 : 0;
    return failed;
}

int run_body(const std::function<int(channel&)>& body, channel& parent) {
    int inherited = failures_so_far();
    try {
        int code = body(parent);
        if (code != 0) std::fprintf(stderr, "child %d returns %d\n", ::getpid(), code);
        return code == 0 && failures_so_far() > inherited ? 1 : code;
    } catch (const std::exception& what) {
        std::fprintf(stderr, "child %d: %s\n", ::getpid(), what.what());
        return 125;
    }
}

}  // namespace

bool channel::say(std::string_view text) {
    if (text.size() > max_bytes) throw std::length_error("a text of a channel is too long");
    // A leading byte distinguishes an empty text from the end of the line.
    std::string framed = ">";
    framed += text;
    for (;;) {
        if (::send(end_.get(), framed.data(), framed.size(), MSG_NOSIGNAL) >= 0) return true;
        if (errno != EINTR) return false;
    }
}

std::optional<std::string> channel::read(int flags) {
    std::string framed(max_bytes + 1, '\0');
    for (;;) {
        ssize_t got = ::recv(end_.get(), framed.data(), framed.size(), flags);
        if (got > 0) return framed.substr(1, static_cast<std::size_t>(got) - 1);
        if (got == 0) throw std::runtime_error("the process at the other end of the line is gone");
        if (errno == EAGAIN) return std::nullopt;
        if (errno == ECONNRESET) throw std::runtime_error("the process at the other end died");
        if (errno != EINTR) throw_errno("reading from a channel");
    }
}

std::string channel::hear() {
    return *read(0);
}
std::optional<std::string> channel::overhear() {
    return read(MSG_DONTWAIT);
}

child_process::child_process(pid_t pid, unique_fd line, unique_fd output) noexcept
    : pid_(pid), line_(std::move(line)), output_(std::move(output)) {}

child_process::child_process(child_process&& from) noexcept
    : pid_(std::exchange(from.pid_, -1)),
      code_(from.code_),
      line_(std::move(from.line_)),
      output_(std::move(from.output_)) {}

child_process::child_process(const std::function<int(channel&)>& body) : line_(unique_fd()) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        throw_errno("making a line to a child");
    unique_fd ours(ends[0]);
    unique_fd theirs(ends[1]);
    std::fflush(nullptr);  // Otherwise the child would print buffered output a second time.
    pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0) throw_errno("forking a child");
    if (pid_ == 0) {
        die_with_parent(parent);
        drop_inherited_descriptors(theirs.get());
        (void)ours.release();
        channel to_parent(std::move(theirs));
        int code = run_body(body, to_parent);
        std::fflush(nullptr);
        ::_exit(code);
    }
    line_ = channel(std::move(ours));
}

child_process child_process::run(const std::vector<std::string>& argv) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw_errno("making a pipe for a program's output");
    unique_fd ours(ends[0]);
    unique_fd theirs(ends[1]);
    std::vector<char*> words;
    for (const std::string& word : argv)
        words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    std::fflush(nullptr);
    pid_t parent = ::getpid();
    pid_t pid = ::fork();
    if (pid < 0) throw_errno("forking a program");
    if (pid == 0) {
        die_with_parent(parent);
        ::dup2(theirs.get(), 1);
        ::dup2(theirs.get(), 2);
        ::syscall(SYS_close_range, 3u, ~0u, static_cast<unsigned>(CLOSE_RANGE_CLOEXEC));
        ::execvp(words[0], words.data());
        ::_exit(127);
    }
    return child_process(pid, unique_fd(), std::move(ours));
}

child_process::~child_process() {
    if (pid_ > 0 && !code_) kill();
}

void child_process::signal(int number) const {
    if (!code_) ::kill(pid_, number);
}

void child_process::kill() {
    signal(SIGKILL);
    join();
}

void child_process::freeze() {
    signal(SIGSTOP);
    wait_until_still();
}

void child_process::wait_until_still() {
    siginfo_t seen{};
    while (::waitid(P_PID, static_cast<id_t>(pid_), &seen, WSTOPPED | WEXITED | WNOWAIT) != 0 &&
           errno == EINTR) {
    }
}

void child_process::thaw() {
    signal(SIGCONT);
}

int child_process::join() {
    while (!code_) {
        int how = 0;
        if (::waitpid(pid_, &how, 0) < 0) {
            if (errno == EINTR) continue;
            throw_errno("waiting for a child");
        }
        if (WIFEXITED(how)) code_ = WEXITSTATUS(how);
        if (WIFSIGNALED(how)) code_ = 128 + WTERMSIG(how);
    }
    return *code_;
}

std::string child_process::output() {
    std::string all;
    char piece[4096];
    for (;;) {
        ssize_t got = ::read(output_.get(), piece, sizeof piece);
        if (got == 0) return all;
        if (got > 0) all.append(piece, static_cast<std::size_t>(got));
        if (got < 0 && errno != EINTR) throw_errno("reading a program's output");
    }
}

}  // namespace amalgam::conformance
