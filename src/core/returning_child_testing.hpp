#pragma once

#include <array>
#include <atomic>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/status.hpp>

// Children of fork() that come back from what a thread of the library's called.

namespace amalgam::core_testing {

/// How the child ended.
inline int ended(pid_t child) {
    int how = 0;
    EXPECT_EQ(::waitpid(child, &how, 0), child);
    return WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
}

/// A child that goes on where it was forked, with a standard error that its parent reads.
class child_that_returns {
public:
    child_that_returns() {
        if (::pipe(error_.data()) != 0) throw error(errc::no_memory, "no pipe");
    }
    ~child_that_returns() { ::close(error_[0]); }
    child_that_returns(const child_that_returns&) = delete;
    child_that_returns& operator=(const child_that_returns&) = delete;

    void fork() {
        child_ = ::fork();
        if (child_ == 0) ::dup2(error_[1], STDERR_FILENO);
    }
    /// In both processes.
    bool forked() const { return child_ != -1; }
    /// It was ended with a sentence about that, and did nothing else.
    bool was_ended() {
        ::close(error_[1]);
        std::string said;
        char some[256];
        for (ssize_t got = 0; (got = ::read(error_[0], some, sizeof some)) > 0;)
            said.append(some, static_cast<std::size_t>(got));
        const int how = ended(child_);
        EXPECT_EQ(how, EXIT_FAILURE) << said;
        EXPECT_TRUE(said.starts_with("amalgam: a child of fork() came back")) << said;
        EXPECT_EQ(said.find('\n'), said.size() - 1) << said;
        return how == EXIT_FAILURE;
    }

private:
    std::array<int, 2> error_{};
    // Asked for by who waited for the one that forked over shared memory, too: an order that
    // ThreadSanitizer does not see.
    std::atomic<pid_t> child_{-1};
};

}  // namespace amalgam::core_testing
