#include "directory/resources/store.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>

#include "directory/limits.hpp"

namespace amalgam::detail {
namespace {

std::uint32_t number(resource_id id) {
    return static_cast<std::uint32_t>(id);
}

std::size_t remove_context(resource_store& from, resource_id context) {
    std::size_t removed = 0;
    for (resource_id each = from.first_of(context); each != resource_id::none;
         each = from.first_of(context)) {
        EXPECT_TRUE(from.remove(each));
        ++removed;
    }
    from.remove(context);
    return removed;
}

TEST(resource_store, gives_ids_of_its_ranges_only_and_a_freed_one_last) {
    resource_store store;
    EXPECT_EQ(store.add(resource_id::none, {}), resource_id::none) << "it owns no ids";
    store.own_range(7);
    store.own_range(3);
    store.own_range(7);
    EXPECT_EQ(store.free_ids(), 2u * limits::ids_per_range - 1);
    const resource_id first = store.add(resource_id::none, {});
    EXPECT_TRUE(store.remove(first));
    EXPECT_FALSE(store.remove(first));
    std::set<std::uint32_t> seen{number(first)};
    for (std::size_t left = store.free_ids() - 1; left > 0; --left) {
        const resource_id id = store.add(resource_id::none, {});
        ASSERT_TRUE(seen.insert(number(id)).second);
        const std::uint32_t range = number(id) / limits::ids_per_range;
        ASSERT_TRUE(range == 7 || range == 3);
        ASSERT_TRUE(store.owns(id));
    }
    EXPECT_EQ(store.add(resource_id::none, {}), first) << "all others were used once";
    EXPECT_EQ(store.add(resource_id::none, {}), resource_id::none);
    EXPECT_EQ(store.free_ids(), 0u);
    EXPECT_FALSE(store.owns(resource_id{8 * limits::ids_per_range}));
    EXPECT_FALSE(store.owns(resource_id{~0u}));
    EXPECT_EQ(store.find(resource_id{~0u}).id, resource_id::none);
}

TEST(resource_store, a_range_that_is_retired_gives_no_ids_and_keeps_those_it_gave) {
    constexpr std::uint32_t size = limits::ids_per_range;
    for (const std::size_t before : {0u, 10u, size - 1, size, size + 10, 2 * size}) {
        SCOPED_TRACE(before);
        resource_store store;
        for (const std::uint32_t range : {5, 7, 9})
            store.own_range(range);
        std::vector<resource_id> given;
        for (std::size_t i = 0; i < before; ++i)
            given.push_back(store.add(resource_id::none, {}));
        // Some ids are freed before, some afterwards.
        std::size_t in_others = 0, removed = 0;
        for (std::size_t i = 0; i < given.size(); ++i) {
            if (i == given.size() / 2) store.retire_range(7);
            if (i % 3 == 0) removed += store.remove(given[i]);
            in_others += number(given[i]) / size != 7 && i % 3 != 0;
        }
        store.retire_range(7);
        store.retire_range(7);
        store.retire_range(8);
        EXPECT_EQ(store.free_ids(), 2 * size - 1 - in_others);
        EXPECT_EQ(store.size(), before - removed);
        for (std::size_t i = 0; i < given.size(); ++i)
            ASSERT_EQ(store.find(given[i]).id != resource_id::none, i % 3 != 0);
        std::set<std::uint32_t> seen;
        for (std::size_t left = store.free_ids(); left > 0; --left) {
            const std::uint32_t id = number(store.add(resource_id::none, {}));
            ASSERT_TRUE((id / size == 5 || id / size == 9) && seen.insert(id).second);
        }
        EXPECT_EQ(store.add(resource_id::none, {}), resource_id::none);
        store.own_range(2);
        EXPECT_EQ(number(store.add(resource_id::none, {})) / size, 2u);
    }
}

TEST(resource_store, gives_an_id_that_is_wanted_when_it_was_given_before_and_is_free) {
    resource_store store;
    store.own_range(5);
    const auto wants = [&](resource_id id) { return store.add(resource_id::none, {}, id); };
    const auto at = [](std::uint32_t range, std::uint32_t which) {
        return resource_id{range * limits::ids_per_range + which};
    };
    std::vector<resource_id> given;
    for (int i = 0; i < 5; ++i)
        given.push_back(store.add(resource_id::none, {}));
    EXPECT_EQ(wants(given[2]), resource_id::none) << "it is in use";
    EXPECT_EQ(wants(at(5, 100)), resource_id::none) << "it was never given out";
    EXPECT_EQ(wants(at(6, 1)), resource_id::none) << "of a range that is not its own";
    for (const int i : {1, 3, 2})
        store.remove(given[static_cast<std::size_t>(i)]);
    const std::size_t free = store.free_ids();
    for (const int i : {3, 2, 1}) {
        const resource_id id = given[static_cast<std::size_t>(i)];
        EXPECT_EQ(wants(id), id);
        EXPECT_EQ(wants(id), resource_id::none);
    }
    EXPECT_EQ(store.free_ids(), free - 3);
    store.own_range(6);
    store.retire_range(6);
    for (const resource_id each : {at(6, 9), at(6, 0), at(6, 65535)}) {
        EXPECT_EQ(wants(each), each);
        EXPECT_EQ(wants(each), resource_id::none);
        EXPECT_TRUE(store.remove(each));
        EXPECT_EQ(wants(each), each);
    }
    EXPECT_EQ(store.free_ids(), free - 3);
    std::set<resource_id> seen(given.begin(), given.end());
    for (std::size_t left = store.free_ids(); left > 0; --left)
        ASSERT_TRUE(seen.insert(store.add(resource_id::none, {})).second);
    EXPECT_EQ(store.add(resource_id::none, {}), resource_id::none);
}

TEST(resource_store, a_context_takes_its_resources_with_it) {
    resource_store store;
    store.own_range(0);
    const resource_id first = store.add(resource_id::none, attribute_list{{"type", "context"}});
    const resource_id second = store.add(resource_id::none, attribute_list{{"type", "context"}});
    for (int i = 0; i < 10; ++i)
        store.add(i % 2 == 0 ? first : second, attribute_list{{"type", "server"}});
    EXPECT_EQ(remove_context(store, first), 5u);
    EXPECT_EQ(store.size(), 6u);
    EXPECT_EQ(store.find(first).id, resource_id::none);
    EXPECT_EQ(store.find_first(attribute_list{{"type", "server"}}).context, second);
    EXPECT_EQ(remove_context(store, first), 0u);
    EXPECT_EQ(remove_context(store, second), 5u);
    EXPECT_EQ(store.size(), 0u);
}

TEST(resource_store, a_find_stops_after_as_many_looks_as_it_has_and_says_so) {
    resource_store store;
    store.own_range(0);
    for (int i = 0; i < 10; ++i)
        store.add(resource_id::none, attribute_list{{"n", "1"}, {"m", i == 9 ? "1" : "0"}});
    for (int i = 0; i < 20; ++i)
        store.add(resource_id::none, attribute_list{{"m", "1"}});
    const attribute_list last{{"n", "1"}, {"m", "1"}};
    std::size_t looks = 9;
    EXPECT_EQ(store.find_first(last, looks).id, resource_id::none);
    EXPECT_EQ(looks, 0u) << "there may be more";
    looks = 30;
    EXPECT_NE(store.find_first(last, looks).id, resource_id::none);
    EXPECT_EQ(looks, 20u);
    looks = 10;
    EXPECT_EQ(store.find_first(attribute_list{{"n", "1"}, {"m", "2"}}, looks).id,
              resource_id::none);
    EXPECT_GE(looks, 1u) << "all of them were looked at";
}

TEST(store_search, finds_what_is_there_from_its_start_to_its_end_once) {
    resource_store store;
    store.own_range(1);
    std::vector<resource_id> ids;
    for (int i = 0; i < 10; ++i)
        ids.push_back(store.add(resource_id::none, attribute_list{{"type", "server"}}));
    resource_store::found found;
    using outcome = store_search::outcome;
    store_search search(store, attribute_list{{"type", "server"}});
    store_search other(store, attribute_list{{"type", "server"}});
    ASSERT_EQ(search.next(found, 100), outcome::found);
    EXPECT_EQ(found.id, ids[0]);
    store.remove(ids[0]);  // The current position,
    store.remove(ids[1]);  // and the next.
    ASSERT_EQ(search.next(found, 100), outcome::found);
    EXPECT_EQ(found.id, ids[2]);
    for (int i = 3; i < 10; ++i)
        ASSERT_EQ(search.next(found, 100), outcome::found);
    EXPECT_EQ(search.next(found, 100), outcome::over);
    const resource_id late = store.add(resource_id::none, attribute_list{{"type", "server"}});
    ASSERT_EQ(search.next(found, 100), outcome::found);
    EXPECT_EQ(found.id, late);
    EXPECT_EQ(search.next(found, 100), outcome::over);
    for (const resource_id id : ids)
        store.remove(id);
    store.remove(late);
    EXPECT_EQ(other.next(found, 100), outcome::over);
    EXPECT_EQ(search.next(found, 100), outcome::over);
}

TEST(store_search, looks_at_so_many_at_a_time) {
    resource_store store;
    store.own_range(0);
    for (int i = 0; i < 10; ++i)
        store.add(resource_id::none, attribute_list{{"a", "x"}, {"b", i == 9 ? "y" : "z"}});
    for (int i = 0; i < 20; ++i)
        store.add(resource_id::none, attribute_list{{"b", "y"}});
    using outcome = store_search::outcome;
    store_search search(store, attribute_list{{"b", "y"}, {"a", "x"}});
    resource_store::found found;
    EXPECT_EQ(search.next(found, 4), outcome::unfinished);
    EXPECT_EQ(search.next(found, 4), outcome::unfinished);
    EXPECT_EQ(search.next(found, 4), outcome::found);
    EXPECT_EQ(search.next(found, 4), outcome::over);
}

/// Model of the store: linear search over everything.
struct plain_store {
    struct one {
        resource_id id;
        resource_id context;
        attribute_list what;
    };
    std::vector<one> all;  // In order of registration.

    std::vector<resource_id> matching(const attribute_view& query) const {
        std::vector<resource_id> found;
        for (const one& each : all) {
            bool fits = true;
            for (const attribute& asked : query)
                fits = fits && (asked.is_open || (each.what.find(asked.name) &&
                                                  each.what.text(asked.name) == asked.text()));
            if (fits) found.push_back(each.id);
        }
        return found;
    }
};

attribute_list draw(seeded_random& random, bool query) {
    attribute_list made;
    for (const char* name : {"type", "rack", "user"}) {
        if (random.chance(0.4)) continue;
        if (query && random.chance(0.3))
            made.ask(name);
        else
            made.add(name, std::to_string(random.below(4)));
    }
    return made;
}

TEST(resource_store, finds_what_looking_at_everything_finds) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        seeded_random random(seed);
        resource_store store;
        store.own_range(5);
        plain_store plain;
        struct running {
            std::unique_ptr<store_search> search;
            std::vector<resource_id> from_the_start;
            std::set<resource_id> got;
        };
        std::vector<running> searches;
        for (int step = 0; step < 2000; ++step) {
            const std::uint64_t what = random.below(100);
            if (what < 40) {
                const attribute_list drawn = draw(random, false);
                const resource_id context = plain.all.empty() || random.chance(0.3)
                                                ? resource_id::none
                                                : plain.all[random.below(plain.all.size())].id;
                const resource_id id = store.add(context, drawn);
                plain.all.push_back({id, context, drawn});
            } else if (what < 60 && !plain.all.empty()) {
                const auto gone =
                    plain.all.begin() + static_cast<long>(random.below(plain.all.size()));
                ASSERT_TRUE(store.remove(gone->id));
                plain.all.erase(gone);
            } else if (what < 62 && !plain.all.empty()) {
                const resource_id context = plain.all[random.below(plain.all.size())].id;
                remove_context(store, context);
                std::erase_if(plain.all, [&](const auto& one) {
                    return one.id == context || one.context == context;
                });
            } else if (what < 70) {
                running begun;
                const attribute_list query = draw(random, true);
                begun.search = std::make_unique<store_search>(store, query);
                begun.from_the_start = plain.matching(query);
                searches.push_back(std::move(begun));
            } else if (what < 95 && !searches.empty()) {
                running& one = searches[random.below(searches.size())];
                resource_store::found found;
                if (one.search->next(found, 1 + random.below(20)) == store_search::outcome::found) {
                    ASSERT_TRUE(one.got.insert(found.id).second) << "seed " << seed;
                    const auto now = plain.matching(one.search->query());
                    ASSERT_EQ(std::count(now.begin(), now.end(), found.id), 1);
                }
            } else if (!searches.empty()) {
                running& one = searches.back();
                const auto now = plain.matching(one.search->query());
                resource_store::found found;
                while (one.search->next(found, 1000) == store_search::outcome::found)
                    ASSERT_TRUE(one.got.insert(found.id).second);
                for (const resource_id id : one.from_the_start)
                    if (std::count(now.begin(), now.end(), id) != 0) {
                        ASSERT_EQ(one.got.count(id), 1u) << "seed " << seed;
                    }
                searches.pop_back();
            }
            ASSERT_EQ(store.size(), plain.all.size());
            const attribute_list query = draw(random, true);
            const auto expected = plain.matching(query);
            ASSERT_EQ(store.find_first(query).id,
                      expected.empty() ? resource_id::none : expected.front())
                << "seed " << seed << ", " << to_string(query);
            if (!plain.all.empty()) {
                const auto& any = plain.all[random.below(plain.all.size())];
                ASSERT_EQ(to_string(store.find(any.id).what), to_string(any.what));
            }
        }
    }
}

}  // namespace
}  // namespace amalgam::detail
