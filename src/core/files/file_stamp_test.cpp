#include <gtest/gtest.h>

#include <amalgam/core/detail/file_stamp.hpp>

namespace amalgam::detail {
namespace {

using namespace std::chrono_literals;

TEST(reread_files, what_changed_is_read_until_no_second_change_can_have_the_same_stamp) {
    const reread_files::stamps first{{.bytes = 1, .there = true}};
    const reread_files::stamps second{{.bytes = 2, .there = true}};
    const reread_files::steady::time_point start{1h};
    reread_files files;
    const auto is_read = [&](const reread_files::stamps& now, auto after) {
        const bool read = files.must_be_read(now);
        if (read) {
            files.begin(now, start + after);
            files.were_read();
        }
        return read;
    };
    EXPECT_TRUE(is_read(first, 0s));
    EXPECT_TRUE(is_read(first, 1s));
    EXPECT_TRUE(is_read(first, 2999ms));
    EXPECT_TRUE(is_read(first, 4s)) << "the first that can be the last";
    EXPECT_FALSE(is_read(first, 5s)) << "not for ever";
    EXPECT_TRUE(is_read(second, 6s));
    EXPECT_TRUE(is_read(second, 7s));
    EXPECT_TRUE(is_read(second, 1h));
    EXPECT_FALSE(is_read(second, 1h));
}

TEST(reread_files, what_could_not_be_read_is_read_again_however_old_it_is) {
    const reread_files::stamps now{{.bytes = 1, .there = true}};
    const reread_files::steady::time_point start{1h};
    reread_files files;
    files.begin(now, start);
    files.begin(now, start + 1h);
    EXPECT_TRUE(files.are_settled());
    EXPECT_TRUE(files.must_be_read(now));
    files.were_read();
    EXPECT_FALSE(files.must_be_read(now));
}

}  // namespace
}  // namespace amalgam::detail
