#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <amalgam/core/log.hpp>
#include <amalgam/core/random.hpp>

#include "directory/limits.hpp"
#include "directory/membership/hosts.hpp"
#include "directory/membership/procedures.hpp"
#include "directory/resources/store.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

TEST(ring_faults, a_killed_server_is_asked_no_more_and_missed_by_nobody) {
    hosts all(20);
    all.net.run_for(3s);
    all.add_resource(19, {{"at", "19"}});
    all.add_resource(4, {{"at", "4"}});
    for (const char* each : {"host4", "host5", "host6"})
        all.net.kill(each);
    // Before anybody has noticed: others are asked in place of the dead ones in the trees.
    for (std::size_t i = 7; i < 19; ++i) {
        EXPECT_TRUE(all.find(i, {{"at", "19"}})) << i;
        EXPECT_FALSE(all.find(i, {{"at", "4"}})) << i;
    }
    all.net.run_for(3s);
    for (std::size_t i = 7; i < all.size(); ++i)
        EXPECT_EQ(all.known_by(i), all.size() - 3);
}

std::uint64_t key_of(std::uint64_t seed) {
    return seeded_random(seed)() | 1;
}

TEST(ring_faults, a_query_gets_past_all_who_are_silent_at_once) {
    for (const std::size_t fanout : {2, 8}) {
        for (const bool with_roles : {false, true}) {
            hosts all(30, {.fanout = fanout, .with_roles = with_roles});
            all.net.run_for(3s);
            std::vector<std::size_t> order;  // In ring order.
            for (std::size_t i = 0; i < all.size(); ++i)
                order.push_back(i);
            std::sort(order.begin(), order.end(),
                      [](std::size_t a, std::size_t b) { return key_of(a + 1) < key_of(b + 1); });
            const std::size_t asks = order[0], first_behind = order[10], last = order[29];
            for (const std::size_t each : {first_behind, last})
                all.add_resource(each, {{"type", "box"}, {"at", std::to_string(each)}});
            EXPECT_FALSE(all.find(asks, {{"at", "nowhere"}}));
            for (std::size_t i = 1; i < 10; ++i)
                all.net.cut("host" + std::to_string(order[i]));
            const auto start = all.net.now();
            for (const std::size_t each : {first_behind, last})
                EXPECT_TRUE(all.find(asks, {{"at", std::to_string(each)}})) << each;
            std::size_t seen = 0;
            all.in(asks, [&](context& here) {
                for (const found_resource& each : here.search({{"type", "box"}}))
                    seen += each.id != resource_id::none;
            });
            EXPECT_EQ(seen, 2u);
            EXPECT_LT(all.net.now() - start, 3 * ring_options{}.answer_limit);
        }
    }
}

TEST(ring_faults, a_process_that_dies_before_its_directory_has_ids_leaves_nothing) {
    hosts all(2);
    all.net.run_for(3s);
    all.add();
    const auto opened = all.begin_to_use(2);
    all.net.run_for(20ms);  // It is claiming its ids.
    EXPECT_FALSE(opened.ready());
    all.net.kill("userhost2");
    all.net.run_for(2s);
    EXPECT_EQ(all.contexts_at(2), 0u);
}

TEST(ring_faults, a_server_that_was_cut_off_comes_back) {
    hosts all(6);
    all.net.run_for(3s);
    all.net.cut("host2");
    all.net.run_for(15s);
    for (const std::size_t i : {0, 1, 3, 4, 5})
        EXPECT_EQ(all.known_by(i), 5u);
    all.net.heal("host2");
    all.net.run_for(15s);
    for (std::size_t i = 0; i < all.size(); ++i)
        EXPECT_EQ(all.known_by(i), 6u) << i;
    all.add_resource(2, {{"at", "2"}});
    EXPECT_TRUE(all.find(4, {{"at", "2"}}));
}

TEST(ring_faults, two_halves_that_were_parted_become_one_again) {
    hosts all(10);
    all.net.run_for(3s);
    // Host 0, whose address all were given, stays connected.
    for (const char* each : {"host5", "host6", "host7"})
        all.net.cut(each);
    all.net.run_for(30s);
    EXPECT_EQ(all.known_by(0), 7u);
    for (const char* each : {"host5", "host6", "host7"})
        all.net.heal(each);
    all.net.run_for(40s);
    for (std::size_t i = 0; i < all.size(); ++i)
        EXPECT_EQ(all.known_by(i), all.size()) << i;
}

/// Seeds of two servers that first choose the same id range, the one with the lower key first.
std::pair<std::uint64_t, std::uint64_t> seeds_of_the_same_range() {
    std::map<std::uint64_t, std::uint64_t> seen;
    for (std::uint64_t seed = 100; seed < 10000; ++seed) {
        seeded_random chance(seed);
        (void)chance();
        const auto [at, fresh] = seen.emplace(chance.below(detail::limits::id_ranges), seed);
        if (fresh) continue;
        return key_of(at->second) < key_of(seed) ? std::pair(at->second, seed)
                                                 : std::pair(seed, at->second);
    }
    return {};
}

std::uint32_t range_of(resource_id id) {
    return static_cast<std::uint32_t>(id) / detail::limits::ids_per_range;
}

TEST(ring_faults, servers_that_came_to_own_the_same_ids_while_they_were_parted_keep_them_apart) {
    const auto [lower, higher] = seeds_of_the_same_range();
    hosts all(0);
    all.add({.seed = lower, .in_one = true});
    all.add({.seed = higher, .in_one = true});
    all.add();
    all.net.cut("host1");
    all.net.run_for(5s);
    ASSERT_EQ(all.known_by(1), 1u);
    const auto box_at = [&](std::size_t host) {
        return all.in(host, [&](context& here) {
            return here.add({{"type", "box"}, {"at", std::to_string(host)}});
        });
    };
    std::vector<resource> of_0, of_1;
    for (int i = 0; i < 3; ++i)
        of_0.push_back(box_at(0));
    for (int i = 0; i < 6; ++i)
        of_1.push_back(box_at(1));
    const std::uint32_t range = range_of(of_0[0].id());
    for (std::size_t i = 0; i < of_0.size(); ++i)
        ASSERT_EQ(of_0[i].id(), of_1[i].id());
    all.net.heal("host1");
    all.net.run_for(40s);
    for (std::size_t i = 0; i < all.size(); ++i)
        ASSERT_EQ(all.known_by(i), 3u);

    attribute_list where;
    where.ask("at");
    const auto found_at = [&](std::size_t from, resource_id id) {
        const auto found = all.in(from, [&](context& here) { return here.find(id, where); });
        return found ? std::string(found->what.text("at")) : std::string("nowhere");
    };
    for (std::size_t i = 0; i < of_1.size(); ++i) {
        const bool both = i < of_0.size();
        EXPECT_EQ(found_at(0, of_1[i].id()), both ? "0" : "1");
        EXPECT_EQ(found_at(1, of_1[i].id()), "1");
        EXPECT_EQ(found_at(2, of_1[i].id()), both ? "0" : "1");
        all.in(2, [&](context& here) { here.self().send(of_1[i].id(), 7, "hello"); });
        const resource& box = both ? of_0[i] : of_1[i];
        EXPECT_TRUE(all.in(both ? 0 : 1, [&](context&) { return box.try_receive(); })) << i;
    }
    std::size_t seen = 0;
    all.in(2, [&](context& here) {
        for (const found_resource& each : here.search({{"type", "box"}}))
            seen += each.id != resource_id::none;
    });
    EXPECT_EQ(seen, of_0.size() + of_1.size());

    std::set<resource_id> fresh;
    for (int i = 0; i < 10; ++i) {
        const resource_id mine = all.add_resource(0, {}), other = all.add_resource(1, {});
        EXPECT_EQ(range_of(mine), range);
        EXPECT_NE(range_of(other), range);
        EXPECT_TRUE(fresh.insert(mine).second && fresh.insert(other).second);
    }
    of_1.pop_back();
    EXPECT_NE(range_of(box_at(1).id()), range) << "it does not come again, either";
}

TEST(ring_faults, questions_go_round_in_no_circles_whatever_addresses_members_give) {
    hosts all(2);
    all.net.run_for(3s);
    all.add_resource(1, {{"at", "1"}});
    engine stranger(all.net.port("stranger"));
    for (std::uint64_t key = 1; key <= 20; ++key) {
        const detail::member made{
            key * 0x0c0ffee0c0ffee01, 1, {"loop://host0", "loop://host1"}, {}, {}};
        for (const std::string& host : made.addresses)
            stranger.procedure<detail::in_ring::join>(detail::in_ring::join_name)
                .on(stranger.lookup(host))
                .post(made);
    }
    all.net.run_for(100ms);
    EXPECT_EQ(all.known_by(0), 22u);
    const std::uint64_t before = all.net.operations();
    std::mutex lock;
    std::string errors;
    default_logger().set_sink([&](const log_record& line) {
        const std::lock_guard one(lock);
        if (line.level == log_level::error) errors += to_text(line) + '\n';
    });
    EXPECT_TRUE(all.find(0, {{"at", "1"}}));
    EXPECT_FALSE(all.find(0, {{"at", "nowhere"}}));
    default_logger().set_sink({});
    EXPECT_EQ(errors, "") << "questions that are called off before they begin are no error";
    EXPECT_LT(all.net.operations() - before, 300u);
    all.net.run_for(30s);
    EXPECT_EQ(all.known_by(0), 2u) << "nobody is there who answers by those keys";
    EXPECT_TRUE(all.find(0, {{"at", "1"}}));
}

}  // namespace
}  // namespace amalgam
