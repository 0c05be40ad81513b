#include <chrono>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/log.hpp>
#include <amalgam/fabric/loop.hpp>

namespace amalgam {
namespace {

using namespace std::chrono_literals;

class loop_broadcast_test : public testing::Test {
protected:
    loop_broadcast_test() {
        for (const std::string name : {"a", "b", "c"}) {
            ports[name] = net.port(name);
            media[name] = net.broadcast(name);
            media[name]->listen([this, name](const_bytes packet) {
                heard[name].push_back(
                    std::string(reinterpret_cast<const char*>(packet.data()), packet.size()));
            });
        }
    }
    bool say(const std::string& from, const std::string& what) {
        return media[from]->send(as_bytes_of(what));
    }
    using all_heard = std::map<std::string, std::vector<std::string>>;

    loop_network net;
    std::map<std::string, std::unique_ptr<port>> ports;
    std::map<std::string, std::shared_ptr<broadcast_medium>> media;
    all_heard heard;
};

TEST_F(loop_broadcast_test, all_others_hear_a_packet_when_its_time_has_come) {
    net.delay(100us);
    const std::uint64_t before = net.operations();
    EXPECT_TRUE(say("a", "hello"));
    EXPECT_EQ(net.operations(), before + 1);
    net.run_for(99us);
    EXPECT_TRUE(heard.empty());
    net.run_for(1us);
    EXPECT_EQ(heard, (all_heard{{"b", {"hello"}}, {"c", {"hello"}}}));
}

TEST_F(loop_broadcast_test, who_is_cut_off_or_dead_neither_speaks_nor_hears) {
    net.cut("b");
    net.kill("c");
    EXPECT_TRUE(say("a", "1"));
    EXPECT_FALSE(say("b", "2"));
    EXPECT_FALSE(say("c", "3"));
    net.run_until_idle();
    EXPECT_TRUE(heard.empty());
    net.heal("b");
    EXPECT_TRUE(say("a", "4"));
    net.run_until_idle();
    EXPECT_EQ(heard, (all_heard{{"b", {"4"}}}));
}

TEST_F(loop_broadcast_test, packets_can_be_dropped_and_too_long_ones_are_not_sent) {
    net.drop(1);
    EXPECT_TRUE(say("a", "lost"));
    EXPECT_FALSE(say("a", std::string(media["a"]->max_bytes() + 1, '.')));
    net.drop(0);
    media["b"]->listen({});
    media["c"].reset();
    EXPECT_TRUE(say("a", "heard by none"));
    net.run_until_idle();
    EXPECT_TRUE(heard.empty());
}

TEST_F(loop_broadcast_test, a_receiver_that_throws_costs_its_own_packet_only) {
    std::vector<std::string> logged;
    default_logger().set_sink([&](const log_record& line) { logged.push_back(to_text(line)); });
    media["b"]->listen([](const_bytes) { throw std::runtime_error("it does not like it"); });
    EXPECT_TRUE(say("a", "1"));
    EXPECT_TRUE(say("a", "2"));
    net.run_until_idle();
    default_logger().set_sink({});
    ASSERT_FALSE(logged.empty());
    EXPECT_NE(logged.front().find("a receiver of broadcasts threw"), std::string::npos);
    EXPECT_NE(logged.front().find("it does not like it"), std::string::npos);
    EXPECT_EQ(heard, (all_heard{{"c", {"1", "2"}}}));
}

TEST_F(loop_broadcast_test, it_says_nothing_when_the_network_is_gone) {
    std::shared_ptr<broadcast_medium> left;
    {
        loop_network brief;
        const auto port = brief.port("x");
        left = brief.broadcast("x");
        EXPECT_THROW((void)brief.broadcast("nobody"), error);
    }
    EXPECT_FALSE(left->send(as_bytes_of(std::string("?"))));
}

}  // namespace
}  // namespace amalgam
