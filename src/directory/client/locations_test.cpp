#include "directory/client/locations.hpp"

#include <gtest/gtest.h>

#include <amalgam/fabric/loop.hpp>
#include <amalgam/rpc/engine.hpp>

namespace amalgam::detail {
namespace {

/// Peers that are never contacted.
class locations_test : public testing::Test {
protected:
    peer at(const char* name) {
        const auto other = net.port(name);
        return on.lookup(std::string("loop://") + name);
    }

    loop_network net;
    engine on{net.port("here")};
    const peer a = at("a"), b = at("b"), c = at("c");
    static constexpr resource_id one{1}, two{2}, three{3}, four{4};
};

TEST_F(locations_test, a_resource_is_where_its_context_is) {
    locations all;
    EXPECT_FALSE(all.find(one, traffic::small));
    all.learn(one, two);
    EXPECT_FALSE(all.knows(one)) << "of a context that is not known nothing is learnt";
    ways_there ways(a);
    ways.by[static_cast<std::size_t>(traffic::bulk)] = b;
    all.learn_context(two, ways);
    EXPECT_EQ(all.find_context(two), a);
    all.learn(one, two);
    EXPECT_EQ(all.find(one, traffic::small), a);
    EXPECT_EQ(all.find(one, traffic::bulk), b);
    EXPECT_EQ(all.find(one, traffic::control), a);
    all.learn_context(two, ways_there(c));
    all.learn(one, two);
    EXPECT_EQ(all.find(one, traffic::bulk), c);
    all.forget(one);
    EXPECT_FALSE(all.knows(one));
    EXPECT_TRUE(all.find_context(two));
}

TEST_F(locations_test, a_path_that_a_message_shows_is_not_used_while_a_look_up_may_find_another) {
    locations all;
    EXPECT_FALSE(all.begin_look_up(one, traffic::small));
    EXPECT_FALSE(all.begin_look_up(one, traffic::small));
    all.learn_sender(one, ways_there(a));
    EXPECT_FALSE(all.find(one, traffic::small));
    EXPECT_EQ(all.find_shown(one, traffic::small), a);
    all.end_look_up(one);
    EXPECT_FALSE(all.find(one, traffic::small)) << "another one is under way";
    all.learn_context(two, ways_there(b));
    all.learn(one, two);
    EXPECT_EQ(all.find(one, traffic::small), b);
    all.end_look_up(one);
    EXPECT_EQ(all.find(one, traffic::small), b);

    EXPECT_FALSE(all.begin_look_up(three, traffic::small));
    all.learn_sender(three, ways_there(a));
    all.end_look_up(three);
    EXPECT_EQ(all.find(three, traffic::small), a) << "the look-up has found nothing";
    EXPECT_EQ(all.begin_look_up(three, traffic::small), a);
    EXPECT_EQ(all.find(three, traffic::small), a) << "none has begun";
}

TEST_F(locations_test, what_was_found_last_is_found_only_while_it_is_so) {
    locations all, others;
    all.learn_sender(one, ways_there(a));
    EXPECT_EQ(all.find(one, traffic::small), a);
    EXPECT_FALSE(others.find(one, traffic::small)) << "another table";
    others.learn_sender(one, ways_there(b));
    EXPECT_EQ(others.find(one, traffic::small), b);
    EXPECT_EQ(all.find(one, traffic::small), a);
    all.forget(one);
    EXPECT_FALSE(all.find(one, traffic::small));
    all.learn_sender(one, ways_there(c));
    EXPECT_EQ(all.find(one, traffic::small), c);
    all.forget(c);
    EXPECT_FALSE(all.find(one, traffic::small));
}

TEST_F(locations_test, a_thread_that_looks_for_several_in_turn_remembers_each) {
    locations all, others;
    all.learn_sender(one, ways_there(a));
    all.learn_sender(two, ways_there(b));
    others.learn_sender(one, ways_there(c));
    for (const resource_id each : {one, two})
        EXPECT_TRUE(all.find(each, traffic::small));
    EXPECT_TRUE(others.find(one, traffic::small));
    const auto is_at = [](const peer* found, const peer& where) {
        return found != nullptr && *found == where;
    };
    EXPECT_TRUE(is_at(all.find_last(one, traffic::small), a));
    EXPECT_TRUE(is_at(all.find_last(two, traffic::small), b));
    EXPECT_TRUE(is_at(others.find_last(one, traffic::small), c));
    all.forget(two);
    for (const resource_id each : {one, two})
        EXPECT_EQ(all.find_last(each, traffic::small), nullptr) << "the table has changed";
    EXPECT_TRUE(is_at(others.find_last(one, traffic::small), c)) << "this one has not";
}

TEST_F(locations_test, who_sends_changes_nothing_that_is_known) {
    locations all;
    all.learn_sender(one, ways_there(a));
    all.learn_sender(one, ways_there(b));
    EXPECT_EQ(all.find(one, traffic::small), a);
    EXPECT_FALSE(all.find_context(one));
}

TEST_F(locations_test, a_context_that_is_gone_takes_its_resources_with_it_and_no_others) {
    locations all;
    ways_there ways(a);
    ways.by[static_cast<std::size_t>(traffic::control)] = c;
    all.learn_context(two, ways);
    all.learn_context(four, ways_there(b));
    all.learn(one, two);
    all.learn(three, four);
    all.learn_sender(two, ways_there(c));
    all.forget(c);
    for (const resource_id each : {one, two})
        EXPECT_FALSE(all.knows(each)) << "one of its ways is";
    EXPECT_FALSE(all.find_context(two));
    EXPECT_EQ(all.find(three, traffic::small), b);
    EXPECT_EQ(all.find_context(four), b);
}

TEST_F(locations_test, what_was_looked_up_for_a_sender_pushes_out_nothing_else_that_was_looked_up) {
    locations all(2);
    all.learn_context(four, ways_there(a));
    all.learn(one, four);
    all.learn(two, four, true);
    EXPECT_EQ(all.find_looked_up(two), a);
    all.learn(three, four, true);
    EXPECT_TRUE(all.knows(one));
    EXPECT_FALSE(all.knows(two));
    EXPECT_EQ(all.find_looked_up(three), a);
    all.learn(three, four);  // Now it was looked up for itself.
    all.learn(two, four, true);
    EXPECT_TRUE(all.knows(one) && all.knows(three));
    EXPECT_FALSE(all.knows(two)) << "there is no room";
    all.learn(one, four, true);
    all.learn_sender(two, ways_there(b));
    EXPECT_TRUE(all.knows(one)) << "it stays what it was";
    all.learn(two, four);
    EXPECT_TRUE(all.knows(two));
    EXPECT_EQ(all.resources(), 1u);
    all.learn(one, four, true);
    all.learn_sender(three, ways_there(b));
    EXPECT_FALSE(all.knows(one));
    EXPECT_TRUE(all.knows(two) && all.knows(three));
}

TEST_F(locations_test, so_many_are_kept_of_each) {
    locations all(2);
    for (const resource_id each : {one, two})
        all.learn_context(each, ways_there(a));
    all.learn_context(two, ways_there(b));
    EXPECT_TRUE(all.find_context(one)) << "it was known";
    all.learn(one, one);
    all.learn_sender(two, ways_there(b));
    all.learn(one, two);
    all.learn_sender(two, ways_there(c));
    EXPECT_TRUE(all.knows(one) && all.knows(two));
    all.learn_sender(three, ways_there(c));
    EXPECT_TRUE(all.find_looked_up(one)) << "who sends pushes out nothing that was looked up";
    EXPECT_FALSE(all.knows(two)) << "but another who only sent";
    EXPECT_TRUE(all.knows(three));
    all.learn(two, one);
    EXPECT_TRUE(all.find_looked_up(one) && all.find_looked_up(two));
    EXPECT_FALSE(all.knows(three));
    all.learn_sender(three, ways_there(c));
    EXPECT_TRUE(all.find_looked_up(one) && all.find_looked_up(two));
    EXPECT_FALSE(all.knows(three));
    all.learn(four, one);
    EXPECT_TRUE(all.knows(four));
    EXPECT_FALSE(all.knows(one) || all.knows(two));
    all.learn_context(three, ways_there(c));
    EXPECT_FALSE(all.find_context(one) || all.find_context(two));
    EXPECT_TRUE(all.find_context(three));
}

}  // namespace
}  // namespace amalgam::detail
