#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>

#include "conformance/slow_build.hpp"
#include "directory/membership/hosts.hpp"
#include "directory/protocol/broadcast_packet.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

class broadcasting : public hosts {
public:
    explicit broadcasting(std::size_t count, shape like = {}) : hosts(count, on_medium(like)) {}

    /// Gives each host a resource with its number.
    void fill() {
        for (std::size_t i = 0; i < size(); ++i)
            add_resource(i, {{"type", "host"}, {"number", std::to_string(i)}});
    }
    /// All matches, each at most once.
    std::set<std::string> numbers_found(std::size_t from) {
        return in(from, [](context& here) {
            std::set<std::string> numbers;
            attribute_list query{{"type", "host"}};
            query.ask("number");
            for (const found_resource& each : here.search(query))
                EXPECT_TRUE(numbers.insert(std::string(each.what.text("number"))).second);
            return numbers;
        });
    }
    /// Time of a query for a host's number, which must succeed.
    clock::duration time_of_query(std::size_t from, std::size_t of) {
        return in(from, [=](context& here) {
            const auto start = here.where().now();
            const auto found = here.find({{"number", std::to_string(of)}});
            EXPECT_TRUE(found.has_value()) << of;
            return here.where().now() - start;
        });
    }

private:
    static shape on_medium(shape like) {
        like.by_medium = true;
        return like;
    }
};

TEST(ring_broadcast, servers_on_a_medium_find_each_other) {
    for (const std::size_t count : {1, 2, 3, 40}) {
        broadcasting all(count);
        all.net.run_for(5s);
        for (std::size_t i = 0; i < count; ++i)
            EXPECT_EQ(all.known_by(i), count) << i;
    }
}

TEST(ring_broadcast, a_server_that_comes_later_is_met_and_one_that_dies_is_missed) {
    broadcasting all(5);
    all.net.run_for(3s);
    all.add();
    all.net.run_for(2s);
    for (std::size_t i = 0; i < all.size(); ++i)
        EXPECT_EQ(all.known_by(i), 6u);
    all.net.kill("host3");
    all.net.run_for(3s);
    for (const std::size_t i : {0, 1, 2, 4, 5})
        EXPECT_EQ(all.known_by(i), 5u);
}

TEST(ring_broadcast, two_halves_that_were_parted_become_one_again) {
    broadcasting all(8);
    all.net.run_for(3s);
    for (const char* each : {"host0", "host1", "host2", "host3"})
        all.net.cut(each);
    all.net.run_for(15s);
    EXPECT_EQ(all.known_by(7), 4u);
    for (const char* each : {"host0", "host1", "host2", "host3"})
        all.net.heal(each);
    all.net.run_for(30s);
    for (std::size_t i = 0; i < all.size(); ++i)
        EXPECT_EQ(all.known_by(i), 8u) << i;
}

TEST(ring_broadcast, a_query_is_one_packet_and_one_answer) {
    broadcasting all(40);
    all.net.run_for(5s);
    all.fill();
    (void)all.time_of_query(3, 7);
    for (const std::size_t of : {0, 17, 39}) {
        // The context's query and its answer, the packet, the answer to it.
        EXPECT_LT(all.time_of_query(3, of), 1ms);
        const std::uint64_t before = all.net.operations();
        all.in(3, [&](context& here) {
            EXPECT_TRUE(here.find({{"number", std::to_string(of)}}));
            EXPECT_LE(all.net.operations() - before, 20u);
            return true;
        });
    }
}

TEST(ring_broadcast, what_nobody_has_is_looked_for_by_trees_as_well) {
    broadcasting all(10);
    all.net.run_for(5s);
    EXPECT_FALSE(all.find(4, {{"number", "none"}}));
}

TEST(ring_broadcast, a_search_finds_what_all_have_and_each_once) {
    for (const std::size_t count : {10, conformance::slow_build ? 30 : 80}) {
        broadcasting all(count);
        all.net.run_for(10s);
        all.fill();
        EXPECT_EQ(all.numbers_found(2).size(), count);
    }
}

TEST(ring_broadcast, where_packets_are_lost_trees_find_what_is_there) {
    broadcasting all(10);
    all.net.run_for(5s);
    all.fill();
    all.medium_of(3).loses = true;
    for (const std::size_t of : {0, 1, 2})
        EXPECT_GE(all.time_of_query(3, of), 5ms);
    EXPECT_LT(all.time_of_query(3, 4), 2ms) << "it still broadcasts";
    all.medium_of(3).loses = false;
    all.net.run_for(31s);
    EXPECT_LT(all.time_of_query(3, 5), 1ms) << "it does not broadcast again";
}

TEST(ring_broadcast, where_a_medium_refuses_trees_are_used_at_once) {
    broadcasting all(10);
    all.net.run_for(5s);
    all.fill();
    all.medium_of(3).refuses = true;
    for (const std::size_t of : {0, 1})
        EXPECT_LT(all.time_of_query(3, of), 2ms);
}

TEST(ring_broadcast, a_search_is_whole_when_packets_are_lost) {
    broadcasting all(10);
    all.net.run_for(5s);
    all.fill();
    all.medium_of(2).loses = true;
    for (int i = 0; i < 5; ++i)
        EXPECT_EQ(all.numbers_found(2).size(), 10u);
}

// ---- strangers

TEST(ring_broadcast, what_is_no_packet_is_counted_and_dropped) {
    broadcasting all(2);
    all.net.run_for(3s);
    const auto stranger = all.net.port("stranger");
    const auto says = all.net.broadcast("stranger");
    detail::broadcast_packet packet;
    packet.what = detail::broadcast_packet::kind::search;
    packet.from = 99;  // A stranger gets no answer.
    packet.query = attribute_list{{"type", "host"}};
    const std::vector<std::byte> good = to_bytes(packet);
    std::uint64_t bad = 0;
    seeded_random random(5);
    for (std::size_t length = 0; length < good.size(); ++length, ++bad)
        EXPECT_TRUE(says->send(const_bytes(good).first(length)));
    for (int i = 0; i < 300; ++i) {
        std::vector<std::byte> changed = good;
        for (int times = 0; times < 3; ++times)
            changed[random.below(changed.size())] = static_cast<std::byte>(random.below(256));
        EXPECT_TRUE(says->send(changed));
        all.net.run_for(1ms);
    }
    all.net.run_for(1s);
    EXPECT_GE(all.counted(1, "directory.packets_refused"), bad);
    EXPECT_EQ(all.known_by(1), 2u);
}

TEST(ring_broadcast, more_packets_than_can_be_heard_are_dropped) {
    broadcasting all(2);
    all.net.run_for(3s);
    const auto stranger = all.net.port("stranger");
    const auto says = all.net.broadcast("stranger");
    detail::broadcast_packet packet;
    packet.from = 99;
    for (int i = 0; i < 2000; ++i)
        EXPECT_TRUE(says->send(to_bytes(packet)));
    all.net.run_for(1s);
    EXPECT_EQ(all.known_by(0), 2u);
    all.fill();
    (void)all.time_of_query(0, 1);
}

}  // namespace
}  // namespace amalgam
