#include "directory/membership/member_table.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>

#include "directory/limits.hpp"
#include "directory/resources/store.hpp"

namespace amalgam::detail {
namespace {

member of(std::uint64_t key, std::uint32_t version = 1, std::vector<std::uint32_t> ranges = {}) {
    return {key, version, {"tcp://10.0.0.1:7000"}, std::move(ranges), {}};
}

member_table::time_point at(int seconds) {
    return member_table::time_point{} + std::chrono::seconds(seconds);
}

using learnt = member_table::learnt;

TEST(member_table, digest_tells_what_else_is_said_in_the_same_version) {
    const member one{7, 3, {"loop://a"}, {4}, {}};
    member other = one;
    EXPECT_EQ(member_table::digest_of(one), member_table::digest_of(other));
    other.ranges = {5};
    EXPECT_NE(member_table::digest_of(one), member_table::digest_of(other));
    other = one;
    other.addresses = {"loop://b"};
    EXPECT_NE(member_table::digest_of(one), member_table::digest_of(other));
    other = one;
    other.settled = {4};
    EXPECT_NE(member_table::digest_of(one), member_table::digest_of(other));
}

TEST(member_table, knows_the_newest_of_each_and_whose_a_range_is) {
    member_table table;
    EXPECT_EQ(table.learn(of(7, 1, {1, 2}), at(0)), learnt::first);
    EXPECT_EQ(table.learn(of(7, 1, {3}), at(0)), learnt::nothing);
    EXPECT_EQ(table.learn(of(7, 3, {2, 3}), at(0)), learnt::newer);
    EXPECT_EQ(table.learn(of(7, 2, {4}), at(0)), learnt::nothing);
    EXPECT_EQ(table.owner_of(1), nullptr);
    EXPECT_EQ(table.owner_of(2)->key, 7u);
    EXPECT_EQ(table.owner_of(3)->key, 7u);
    EXPECT_FALSE(table.remove({7, 2}, at(0))) << "it has said since that it is there";
    EXPECT_TRUE(table.remove({7, 3}, at(0)));
    EXPECT_FALSE(table.remove({7, 3}, at(0)));
    EXPECT_EQ(table.owner_of(3), nullptr);
    EXPECT_EQ(table.find(7), nullptr);
    EXPECT_EQ(table.learn(of(7, 3), at(9)), learnt::nothing) << "late news of one that is gone";
    EXPECT_EQ(table.departures(at(9)), (std::vector<departure>{{7, 3}}));
    EXPECT_EQ(table.size(), 0u);
    EXPECT_EQ(table.learn(of(7, 4), at(9)), learnt::first);
    EXPECT_TRUE(table.departures(at(9)).empty());
    EXPECT_TRUE(table.remove({7, 4}, at(9)));
    EXPECT_EQ(table.learn(of(7, 4), at(19)), learnt::first) << "that was long ago";
}

TEST(member_table, keeps_nobody_who_says_what_no_server_would) {
    member_table table;
    const std::uint32_t end = limits::id_ranges;
    std::vector<std::uint32_t> many;
    for (std::uint32_t i = 0; i <= limits::max_ranges; ++i)
        many.push_back(i);
    for (const std::vector<std::uint32_t>& ranges :
         {std::vector<std::uint32_t>{5, 5}, std::vector<std::uint32_t>{end}, many}) {
        EXPECT_EQ(table.learn(of(7, 1, ranges), at(0)), learnt::nothing);
        member settles = of(7);
        settles.settled = ranges;
        EXPECT_EQ(table.learn(settles, at(0)), learnt::nothing);
    }
    member listens = of(7);
    listens.addresses = {std::string(256, 'a')};
    EXPECT_EQ(table.learn(listens, at(0)), learnt::nothing);
    listens.addresses.assign(limits::max_addresses + 1, "tcp://10.0.0.1:7000");
    EXPECT_EQ(table.learn(listens, at(0)), learnt::nothing);
    EXPECT_EQ(table.learn(of(0), at(0)), learnt::nothing);
    EXPECT_EQ(table.size(), 0u);

    many.pop_back();
    std::uint64_t key = 1;
    while (table.learn(of(key, 1, many), at(0)) == learnt::first)
        ++key;
    EXPECT_EQ(table.size(), limits::max_claims / limits::max_ranges);
    EXPECT_EQ(table.learn(of(1, 2, many), at(0)), learnt::newer) << "it claims no more than before";
    EXPECT_EQ(table.learn(of(key, 1), at(0)), learnt::first);
}

TEST(member_table, keeps_so_many_members_and_departures_and_still_learns_of_those_it_has) {
    member_table table(std::chrono::seconds(10), 2);
    EXPECT_EQ(table.learn(of(1), at(0)), learnt::first);
    EXPECT_EQ(table.learn(of(2), at(0)), learnt::first);
    EXPECT_EQ(table.learn(of(3), at(0)), learnt::nothing);
    EXPECT_EQ(table.learn(of(2, 2), at(0)), learnt::newer);
    EXPECT_EQ(table.size(), 2u);
    for (const std::uint64_t key : {1, 2, 3, 4}) {
        table.learn(of(key, 3), at(1));
        EXPECT_TRUE(table.remove({key, 3}, at(1)));
        EXPECT_LE(table.departures(at(1)).size(), 2u);
    }
    EXPECT_EQ(table.learn(of(5), at(1)), learnt::first) << "who went left a place";
}

TEST(member_table, of_two_that_claim_a_range_the_first_has_it_while_it_is_there) {
    member_table table;
    table.learn(of(7, 1, {1}), at(1));
    table.learn(of(3, 1, {1, 2}), at(2));
    EXPECT_EQ(table.owner_of(1)->key, 7u);
    EXPECT_EQ(table.claimants_of(1).size(), 2u);
    table.learn(of(7, 2, {1, 4}), at(3));
    EXPECT_EQ(table.owner_of(1)->key, 7u) << "since it was first heard of";
    table.learn(of(7, 3, {4}), at(4));
    EXPECT_EQ(table.owner_of(1)->key, 3u);
    table.remove({3, 1}, at(5));
    EXPECT_EQ(table.owner_of(1), nullptr);
    EXPECT_EQ(table.owner_of(2), nullptr);
    EXPECT_EQ(table.owner_of(4)->key, 7u);
}

TEST(member_table, knows_who_is_next) {
    member_table table;
    for (const std::uint64_t key : {2, 1})
        table.learn(of(key), at(0));
    EXPECT_EQ(table.keys(), (std::vector<std::uint64_t>{1, 2}));
    EXPECT_EQ(table.after(1)->key, 2u);
    EXPECT_EQ(table.after(2)->key, 1u);
    EXPECT_EQ(table.after(2, 2)->key, 2u);
    EXPECT_EQ(table.after(2, 3), nullptr);
}

TEST(member_table, equal_tables_have_equal_digests) {
    seeded_random random(1);
    std::vector<member> all;
    for (int i = 0; i < 50; ++i)
        all.push_back(of(random(), static_cast<std::uint32_t>(random.below(3))));
    member_table one, two;
    for (const member& each : all)
        one.learn(each, at(0));
    std::shuffle(all.begin(), all.end(), random);
    for (const member& each : all) {
        EXPECT_NE(one.digest(), two.digest());
        two.learn(each, at(1));
    }
    EXPECT_EQ(one.digest(), two.digest());
    one.remove({all[0].key, all[0].version}, at(1));
    EXPECT_NE(one.digest(), two.digest());
    two.remove({all[0].key, all[0].version}, at(1));
    EXPECT_EQ(one.digest(), two.digest());
}

TEST(member_table, cuts_a_part_into_pieces_that_hold_all_of_it_once) {
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        SCOPED_TRACE(seed);
        seeded_random random(seed);
        member_table table;
        // With few keys, some coincide with the bounds of a part.
        const std::uint64_t keys = random.chance(0.5) ? 50 : ~0ull;
        for (std::uint64_t left = random.below(40); left > 0; --left)
            table.learn(of(1 + random.below(keys)), at(0));
        const ring_part part{random.below(keys), 1 + random.below(keys / 2),
                             random.chance(0.3) ? 0 : keys / 2 + random.below(keys / 2)};
        const std::size_t most = 1 + random.below(6);
        std::set<std::uint64_t> inside;
        for (const member& each : table.all())
            if (part.holds(each.key)) inside.insert(each.key);
        const auto cuts = table.split(part, most);
        ASSERT_EQ(cuts.size(), std::min(most, inside.size()));
        std::size_t fewest = inside.size(), largest = 0;
        for (std::size_t i = 0; i < cuts.size(); ++i) {
            ASSERT_EQ(cuts[i].part.from, part.from);
            ASSERT_EQ(cuts[i].part.first, i == 0 ? part.first : cuts[i - 1].part.end);
            std::size_t here = 0;
            for (const std::uint64_t key : inside)
                here += cuts[i].part.holds(key);
            ASSERT_TRUE(cuts[i].part.holds(cuts[i].who) && inside.contains(cuts[i].who));
            fewest = std::min(fewest, here);
            largest = std::max(largest, here);
        }
        if (cuts.empty()) continue;
        ASSERT_EQ(cuts.back().part.end, part.end);
        ASSERT_LE(largest, fewest + 1);
    }
}

/// Delegates as servers would, each with its own table.
void ask(const std::map<std::uint64_t, member_table>& tables, std::uint64_t who,
         const ring_part& part, std::map<std::uint64_t, int>& asked) {
    ++asked[who];
    for (const delegation& each : tables.at(who).split_around(who, part, 3))
        ask(tables, each.who, each.part, asked);
}

TEST(member_table, a_tree_of_delegations_reaches_each_once) {
    seeded_random random(5);
    for (const int size : {1, 2, 10, 200}) {
        std::vector<member> all;
        for (int i = 0; i < size; ++i)
            all.push_back(of(random()));
        std::map<std::uint64_t, member_table> tables;
        for (const member& each : all)
            for (const member& other : all)
                if (other.key != each.key) tables[each.key].learn(other, at(0));
        if (size == 1) tables[all[0].key];
        std::map<std::uint64_t, int> asked;
        ask(tables, all[0].key, {all[0].key, 1, 0}, asked);
        EXPECT_EQ(asked.size(), all.size());
        for (const auto& [key, times] : asked)
            EXPECT_EQ(times, 1);
    }
}

}  // namespace
}  // namespace amalgam::detail
