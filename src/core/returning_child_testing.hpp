#pragma once

#include <array>
#include <atomic>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/status.hpp>

// For tests of fork() children that return from code called by a library thread.

namespace amalgam::core_testing {

/// The child's exit code, or 128 plus the signal that ended it.
inline int ended(pid_t child) {
    int how = 0;
    EXPECT_EQ(::waitpid(child, &how, 0), child);
    return WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
}

/// A child that continues where it was forked; its parent reads its standard error.
class child_that_returns {
public:
    child_that_returns() {
        if (::pipe(error_.data()) != 0) throw error(errc::no_memory, "cannot create a pipe");
    }
    ~child_that_returns() { ::close(error_[0]); }
    child_that_returns(const child_that_returns&) = delete;
    child_that_returns& operator=(const child_that_returns&) = delete;

    void fork() {
        child_ = ::fork();
        if (child_ == 0) ::dup2(error_[1], STDERR_FILENO);
    }
    /// For both processes: whether fork() succeeded.
    bool forked() const { return child_ != -1; }
    /// Whether the child was terminated with a message that says so, and nothing else.
    bool was_ended() {
        ::close(error_[1]);
        std::string said;
        char some[256];
        for (ssize_t got = 0; (got = ::read(error_[0], some, sizeof some)) > 0;)
            said.append(some, static_cast<std::size_t>(got));
        const int how = ended(child_);
        EXPECT_EQ(how, EXIT_FAILURE) << said;
        EXPECT_TRUE(said.starts_with("amalgam: terminating a child of fork()")) << said;
        EXPECT_EQ(said.find('\n'), said.size() - 1) << said;
        return how == EXIT_FAILURE;
    }

private:
    std::array<int, 2> error_{};
    // Atomic: may be read after a wait that shared memory orders behind the fork, which
    // ThreadSanitizer does not see.
    std::atomic<pid_t> child_{-1};
};

}  // namespace amalgam::core_testing
