#include "directory/resources/posting_lists.hpp"

#include <gtest/gtest.h>

namespace amalgam::detail {
namespace {

TEST(posting_lists, keep_memory_for_those_that_are_there_at_once) {
    posting_lists lists;
    for (std::uint64_t round = 0; round < 1000; ++round) {
        const std::uint32_t a = lists.enter(3 * round, 1, posting_lists::none);
        const std::uint32_t b = lists.enter(3 * round + 1, 1, a);
        const std::uint32_t mark = lists.mark(3 * round + 2);
        EXPECT_EQ(lists.lists(), 3u);
        EXPECT_EQ(lists.count(3 * round), 1u);
        lists.leave(b);
        lists.remove_mark(mark);
        EXPECT_EQ(lists.lists(), 0u);
        EXPECT_EQ(lists.count(3 * round), 0u);
    }
    EXPECT_EQ(lists.kept(), 3u);
}

}  // namespace
}  // namespace amalgam::detail
