#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/tasks/ult.hpp>

namespace amalgam {
namespace {

TEST(bell, a_forked_child_does_not_use_its_parents_eventfds) {
    { execution_stream used; }  // Leaves its bell for the next stream.
    const pid_t child = ::fork();
    if (child == 0) {
        int code = 1;
        try {
            for (int fd = 3; fd < 64; ++fd)
                ::close(fd);
            execution_stream own;  // Throws if it watches a nonexistent descriptor.
            spawn(own, [&] { code = 0; }).join();
        } catch (...) {
            code = 2;
        }
        ::_exit(code);
    }
    int how = 0;
    ASSERT_EQ(::waitpid(child, &how, 0), child);
    ASSERT_TRUE(WIFEXITED(how));
    EXPECT_EQ(WEXITSTATUS(how), 0);
}

}  // namespace
}  // namespace amalgam
