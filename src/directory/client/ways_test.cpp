// Contexts known by several addresses: which traffic uses which path.
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/directory/context.hpp>
#include <amalgam/directory/directory_server.hpp>
#include <amalgam/fabric/loop.hpp>
#include <amalgam/tasks/ult.hpp>

namespace amalgam {
namespace {

using namespace std::chrono_literals;

/// A directory, and two contexts, "a" and "b", with three ports each, on a virtual-time network.
class several_ways {
    struct member {
        std::unique_ptr<engine> on;
        std::unique_ptr<context> here;
        resource own;
    };
    template <typename Work>
    std::invoke_result_t<Work&, member&> in(const std::string& which, Work work) {
        member& where = members_[which];
        auto done = where.on->spawn([&where, work] { return work(where); });
        for (int i = 0; i < 1000 && !done.ready(); ++i)
            net.run_for(10ms);
        if (!done.ready()) throw error(errc::timed_out, "an operation never ends");
        return done.get();
    }

public:
    explicit several_ways(const context_options& options = {}) : directory_(host_) {
        for (const std::string name : {"a", "b"}) {
            member& one = members_[name];
            std::vector<std::unique_ptr<port>> ports;
            for (const char* number : {"1", "2", "3"})
                ports.push_back(net.port(name + number));
            one.on = std::make_unique<engine>(std::move(ports));
            in(name, [&](member& me) {
                context_options its = options;
                its.directory = host_.address();
                me.here = std::make_unique<context>(*me.on, its);
                me.own = me.here->add({{"name", name}});
                return true;
            });
        }
        net.on_event([this](const loop_event& what) {
            if (what.what == loop_event::kind::frame) arrived_[std::string(what.to)] += what.bytes;
        });
    }
    /// `from` sends a message of that size to `to`. Returns the ports of `to` it used.
    std::string send(const std::string& from, const std::string& to, std::size_t bytes) {
        const resource_id there = members_[to].own.id();
        in(from, [&](member& me) {  // Finds the path.
            me.own.send(there, 0, "hello");
            return true;
        });
        EXPECT_TRUE(in(to, [](member& me) { return me.own.try_receive({.tag = 0}); }));
        arrived_.clear();
        in(from, [&](member& me) {
            me.own.send(there, 1, std::vector<std::byte>(bytes));
            return true;
        });
        const auto got = in(to, [](member& me) { return me.own.try_receive({.tag = 1}); });
        EXPECT_TRUE(got && got->content.size() == bytes);
        std::string by;
        for (const auto& [name, count] : arrived_)
            if (name.starts_with(to) && count >= bytes) by += name;
        return by;
    }
    /// How a's start_send() to b ends.
    result<void> begin_to_send(std::size_t bytes) {
        const resource_id there = members_["b"].own.id();
        return in("a", [&](member& me) -> result<void> {
            auto ends = me.own.start_send(there, 1, me.here->take_buffer(bytes));
            try {
                ends.get();
                return {};
            } catch (const error& why) {
                return {why.code().code, why.what()};
            }
        });
    }
    /// a sends more than b has room for, and waits; then b reads it all. Returns the bytes that
    /// arrived at b's third port meanwhile.
    std::size_t fill() {
        const resource_id there = members_["b"].own.id();
        arrived_.clear();
        auto sent = members_["a"].on->spawn([&, there] {
            for (int i = 0; i < 10; ++i)
                members_["a"].own.send(there, 2, std::vector<std::byte>(1000));
        });
        net.run_for(1s);
        EXPECT_FALSE(sent.ready());
        for (int i = 0; i < 10; ++i) {
            EXPECT_TRUE(in("b", [](member& me) { return me.own.try_receive({.tag = 2}); }));
            net.run_for(1s);
        }
        EXPECT_TRUE(sent.ready());
        return arrived_["b3"];
    }

    loop_network net;

private:
    engine host_{net.port("directory")};
    directory_server directory_;
    std::map<std::string, member> members_;
    std::map<std::string, std::size_t> arrived_;  // Bytes, by port.
};

TEST(ways, small_messages_bulk_and_control_have_a_way_each) {
    several_ways all({.store_bytes = 4096});
    EXPECT_EQ(all.send("a", "b", 100), "b1");
    EXPECT_EQ(all.send("a", "b", 100000), "b2");
    EXPECT_GT(all.fill(), 0u);
}

TEST(ways, answers_choose_among_the_ways_that_their_questions_could_have_come_by) {
    several_ways all;
    (void)all.send("a", "b", 100);
    EXPECT_EQ(all.send("b", "a", 100), "a1");
    EXPECT_EQ(all.send("b", "a", 100000), "a2");
}

TEST(ways, a_policy_of_ones_own_is_followed) {
    several_ways all({.choose = [](traffic what, std::span<const peer_way> ways) {
        EXPECT_EQ(ways.size(), 3u);
        EXPECT_TRUE(ways[0].address.starts_with("loop://"));
        return what == traffic::small ? std::size_t{2} : std::size_t{0};
    }});
    EXPECT_EQ(all.send("a", "b", 100), "b3");
    EXPECT_EQ(all.send("a", "b", 100000), "b1");
}

TEST(ways, a_policy_that_names_none_of_them_is_told_so) {
    several_ways all(
        {.choose = [](traffic, std::span<const peer_way> ways) { return ways.size(); }});
    try {
        (void)all.send("a", "b", 100);
        FAIL() << "it was taken";
    } catch (const error& why) {
        EXPECT_EQ(why.code(), errc::invalid);
        EXPECT_NE(std::string(why.what()).find("returned way 3 of 3"), std::string::npos)
            << why.what();
    }
}

TEST(ways, whatever_a_policy_throws_ends_the_message_alone) {
    struct of_no_standard {};
    std::function<void()> throws;
    several_ways all({.choose = [&](traffic, std::span<const peer_way>) -> std::size_t {
        if (throws) throws();
        return 0;
    }});
    const auto ends = [&](std::function<void()> by, errc code, const std::string& text) {
        throws = std::move(by);
        for (const std::size_t bytes : {std::size_t{100}, std::size_t{100000}}) {
            const result<void> how = all.begin_to_send(bytes);
            EXPECT_EQ(how.code(), code);
            EXPECT_EQ(how.sentence(), text);
        }
    };
    ends([] { throw std::runtime_error("broken"); }, errc::invalid,
         "context_options::choose threw: broken");
    ends([] { throw error(errc::denied, "not there"); }, errc::denied, "not there");
    const std::string other =
        "context_options::choose threw an exception not derived from std::exception";
    ends([] { throw 7; }, errc::invalid, other);
    ends([] { throw of_no_standard(); }, errc::invalid, other);
    ends([] { this_task::exit(); }, errc::invalid, other);
    throws = nullptr;
    EXPECT_TRUE(all.begin_to_send(100).ok());
}

TEST(ways, whatever_a_policy_throws_where_a_message_arrives_the_message_is_taken) {
    struct of_no_standard {};
    const std::vector<std::function<void()>> all_throws{
        [] { throw std::runtime_error("broken"); }, [] { throw 7; }, [] { throw of_no_standard(); },
        [] { this_task::exit(); }};
    for (const auto& throws : all_throws) {
        int calls = 0;
        several_ways all({.choose = [&](traffic, std::span<const peer_way>) -> std::size_t {
            if (++calls > 3) throws();  // The sender has chosen for each kind of traffic.
            return 0;
        }});
        EXPECT_EQ(all.send("a", "b", 100), "b1");
        EXPECT_GT(calls, 3);
    }
}

TEST(ways, no_policy_is_the_usual_one) {
    several_ways all({.choose = {}});
    EXPECT_EQ(all.send("a", "b", 100000), "b2");
}

TEST(ways, what_went_by_a_lost_way_goes_by_another) {
    several_ways all;
    EXPECT_EQ(all.send("a", "b", 100000), "b2");
    all.net.cut("b2");
    all.net.run_for(20s);
    EXPECT_EQ(all.send("a", "b", 100000), "b1");
    EXPECT_EQ(all.send("a", "b", 100), "b1");
}

TEST(ways, far_and_near_ones_are_not_mixed_but_for_control) {
    peer_way shm, tcp;
    shm.can.between_hosts = false;
    tcp.can.between_hosts = true;
    const std::vector<peer_way> both{shm, tcp}, two{tcp, tcp}, one{tcp};
    EXPECT_EQ(choose_way(traffic::small, both), 0u);
    EXPECT_EQ(choose_way(traffic::bulk, both), 0u);
    EXPECT_EQ(choose_way(traffic::control, both), 1u);
    EXPECT_EQ(choose_way(traffic::bulk, two), 1u);
    EXPECT_EQ(choose_way(traffic::control, two), 0u);
    for (const traffic each : {traffic::small, traffic::bulk, traffic::control})
        EXPECT_EQ(choose_way(each, one), 0u);
}

}  // namespace
}  // namespace amalgam
