#include "fabric/packets/scripted_carrier.hpp"

namespace amalgam::detail {
namespace {

TEST_F(introduced_carrier_test, who_greets_is_greeted_and_connected) {
    scripted_link& from = come();
    ASSERT_EQ(events_.links.size(), 1u);
    EXPECT_EQ(events_.addresses[0], "test+tcp://there");
    EXPECT_EQ(events_.rooms, 1);
    EXPECT_EQ(events_.links[0]->their_id(), 77u);
    ASSERT_EQ(from.out.size(), 1u);
    EXPECT_EQ(from.out[0].header.tag, introduction_tag);
}

TEST_F(introduced_carrier_test, one_of_another_kind_is_a_mismatch) {
    come("other+tcp");
    EXPECT_EQ(events_.downs, std::vector<errc>{errc::mismatch});
}

TEST_F(introduced_carrier_test, who_comes_while_there_is_no_memory_is_let_go_without_a_word_more) {
    events_.no_memory = true;
    scripted_link& from = come();
    look();
    EXPECT_EQ(from.shuts, 1);
    EXPECT_EQ(released_, 1);
    EXPECT_TRUE(events_.downs.empty());
    events_.no_memory = false;
    come();
    EXPECT_EQ(events_.links.size(), 1u);
}

TEST_F(introduced_carrier_test, announced_packets_are_waited_for_after_the_farewell) {
    scripted_link& from = come();
    say(from, farewell_tag, farewell(2));
    inner_->link_down(from, {errc::disconnected});
    look();
    EXPECT_TRUE(events_.downs.empty()) << "two packets were announced";
    here_->arrived(*events_.links[0], {});
    look();
    EXPECT_TRUE(events_.downs.empty()) << "one of them is still on its way";
    here_->arrived(*events_.links[0], {});
    look();
    EXPECT_EQ(events_.packets, 2);
    EXPECT_EQ(events_.downs, std::vector<errc>{errc::disconnected});
}

TEST_F(introduced_carrier_test, nobody_sleeps_while_one_who_left_is_waited_for) {
    EXPECT_TRUE(here_->arm()) << "nothing is to be done";
    scripted_link& from = come();
    EXPECT_TRUE(here_->arm());
    say(from, farewell_tag, farewell(1));
    inner_->link_down(from, {errc::disconnected});
    look();
    EXPECT_FALSE(here_->arm()) << "no handle tells of the end of that time";
    here_->arrived(*events_.links[0], {});
    look();
    EXPECT_TRUE(here_->arm());
}

TEST_F(introduced_carrier_test, a_link_stays_as_long_as_its_farewell_is_lent) {
    scripted_link& from = come();
    from.answer = posted::pending;
    events_.links[0]->close();
    ASSERT_EQ(from.out.size(), 2u);
    EXPECT_EQ(from.out[1].header.tag, farewell_tag);
    here_->release(*events_.links[0]);
    EXPECT_EQ(released_, 0);
    look();  // The port below has closed the connection and returned its bytes.
    EXPECT_EQ(from.shuts, 1);
    EXPECT_EQ(released_, 1);
}

TEST_F(introduced_carrier_test, farewells_to_several_that_nobody_takes_do_not_hold_up_the_end) {
    for (int i = 0; i < 3; ++i)
        come().answer = posted::pending;
    for (introduced_link* each : events_.links) {
        each->close();
        here_->release(*each);
    }
    here_.reset();
    EXPECT_EQ(released_, 3);
}

}  // namespace
}  // namespace amalgam::detail
