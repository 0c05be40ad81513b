#include "directory/membership/view.hpp"

#include <gtest/gtest.h>

namespace amalgam::detail {
namespace {

TEST(membership_view, a_suspicion_ends_with_news_of_a_later_version_of_that_server) {
    membership_view view(1, {"loop://one"}, {});
    member other{7, 1, {"loop://seven"}, {}, {}};
    const clock::time_point now{};
    (void)view.learn({{other}, {}}, now);
    ASSERT_TRUE(view.suspect(other, {}, now).has_value());
    EXPECT_TRUE(view.suspects(7));
    (void)view.learn({{other}, {}}, now);
    EXPECT_TRUE(view.suspects(7)) << "it said nothing new";
    other.version = 2;
    EXPECT_EQ(view.learn({{other}, {}}, now).fresh.came.size(), 1u);
    EXPECT_FALSE(view.suspects(7));
}

TEST(membership_view, what_is_said_of_this_server_never_takes_it_to_the_last_version) {
    membership_view view(1, {"loop://one"}, {});
    const std::uint32_t before = view.self().version;
    EXPECT_TRUE(view.learn({{}, {{1, ~0u - 1}}}, {}).was_wrong);
    EXPECT_EQ(view.self().version, before);
    (void)view.learn({{}, {{1, ~0u - 2}}}, {});
    EXPECT_EQ(view.self().version, ~0u - 1) << "a later one than the lie";
}

TEST(membership_view, a_server_that_is_gone_is_suspected_no_more) {
    membership_view view(1, {"loop://one"}, {});
    const member other{7, 1, {"loop://seven"}, {}, {}};
    const clock::time_point now{};
    (void)view.learn({{other}, {}}, now);
    (void)view.suspect(other, {}, now);
    EXPECT_EQ(view.learn({{}, {{7, 1}}}, now).fresh.gone.size(), 1u);
    EXPECT_FALSE(view.suspects(7));
    EXPECT_FALSE(view.knows(7));
    EXPECT_FALSE(view.suspect(other, {}, now).has_value());
}

}  // namespace
}  // namespace amalgam::detail
