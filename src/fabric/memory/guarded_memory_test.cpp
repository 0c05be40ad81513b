#include "fabric/memory/guarded_memory.hpp"

#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "emulated.hpp"
#include "fabric/memory/truncated_file.hpp"

namespace amalgam::detail {
namespace {

TEST(guarded_memory, copies_what_is_there) {
    std::vector<std::byte> from(100'000), to(100'000), back(100'000);
    for (std::size_t i = 0; i < from.size(); ++i)
        from[i] = static_cast<std::byte>(i * 7);
    EXPECT_TRUE(read_guarded(from, to.data()));
    EXPECT_EQ(from, to);
    EXPECT_TRUE(write_guarded(back, from.data()));
    EXPECT_EQ(from, back);
    EXPECT_TRUE(is_readable(from));
    EXPECT_TRUE(read_guarded({}, nullptr));
}

TEST(guarded_memory, a_page_that_a_truncated_file_lost_is_an_error_and_no_signal) {
    if (is_emulated()) GTEST_SKIP() << qemu_cannot_look_first;
    truncated_file file(3 * 4096);
    std::vector<std::byte> other(3 * 4096);
    EXPECT_TRUE(read_guarded(file.bytes(), other.data()));
    file.truncate(4096);
    EXPECT_FALSE(is_readable(file.bytes()));
    EXPECT_FALSE(is_readable_now(file.bytes()));
    EXPECT_FALSE(is_writable_now(file.bytes()));
    EXPECT_TRUE(is_readable_now(file.bytes().first(100)));
    EXPECT_TRUE(is_writable_now(file.bytes().first(100)));
    EXPECT_FALSE(read_guarded(file.bytes(), other.data()));
    EXPECT_FALSE(write_guarded(file.bytes(), other.data()));
    EXPECT_TRUE(read_guarded(file.bytes().first(4096), other.data()));
}

TEST(guarded_memory, a_read_only_page_is_an_error_and_no_signal) {
    if (is_emulated()) GTEST_SKIP() << qemu_cannot_look_first;
    truncated_file file(4096, PROT_READ);
    const std::byte one{1};
    EXPECT_FALSE(write_guarded(file.bytes().first(1), &one));
    EXPECT_TRUE(is_readable(file.bytes()));
    EXPECT_TRUE(is_readable_now(file.bytes()));
    EXPECT_FALSE(is_writable_now(file.bytes().subspan(10, 100)));
}

}  // namespace
}  // namespace amalgam::detail
