#include <fcntl.h>
#include <gtest/gtest.h>

#include <amalgam/core/unique_fd.hpp>

namespace amalgam {
namespace {

int some_fd() {
    return ::open("/dev/null", O_RDONLY | O_CLOEXEC);
}
bool is_open(int fd) {
    return ::fcntl(fd, F_GETFD) != -1;
}

TEST(unique_fd, closes_when_it_ends) {
    int fd = some_fd();
    { unique_fd owner(fd); }
    EXPECT_FALSE(is_open(fd));
}

TEST(unique_fd, moving_hands_over) {
    unique_fd a(some_fd());
    int fd = a.get();
    unique_fd b(std::move(a));
    EXPECT_FALSE(a);
    EXPECT_EQ(b.get(), fd);
    unique_fd c(some_fd());
    int old = c.get();
    c = std::move(b);
    EXPECT_FALSE(is_open(old));
    EXPECT_TRUE(is_open(fd));
}

TEST(unique_fd, release_leaves_it_open) {
    unique_fd a(some_fd());
    unique_fd b(a.release());
    EXPECT_FALSE(a);
    EXPECT_TRUE(is_open(b.get()));
}

TEST(unique_fd, reset_keeps_errno) {
    unique_fd closed_already(12345);
    errno = ENOENT;
    closed_already.reset();
    EXPECT_EQ(errno, ENOENT);
}

TEST(unique_fd, moving_onto_itself_keeps_it) {
    unique_fd a(some_fd());
    int fd = a.get();
    unique_fd& same = a;
    a = std::move(same);
    EXPECT_EQ(a.get(), fd);
    EXPECT_TRUE(is_open(fd));
}

}  // namespace
}  // namespace amalgam
