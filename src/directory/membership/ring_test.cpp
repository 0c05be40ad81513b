#include <map>
#include <set>
#include <string>

#include "conformance/slow_build.hpp"
#include "directory/client/context_core.hpp"
#include "directory/membership/hosts.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

TEST(ring, a_fanout_of_none_is_refused_with_a_sentence) {
    try {
        hosts(1, {.fanout = 0});
        ADD_FAILURE() << "it was taken";
    } catch (const error& why) {
        EXPECT_EQ(why.code(), errc::invalid);
        EXPECT_NE(std::string_view(why.what()).find("fanout is 0"), std::string_view::npos);
    }
}

TEST(ring, servers_that_know_one_soon_know_all) {
    for (const std::size_t count : {1, 2, 3, 30}) {
        hosts all(count);
        all.net.run_for(3s);
        for (std::size_t i = 0; i < count; ++i)
            EXPECT_EQ(all.known_by(i), count) << i;
    }
}

TEST(ring, what_is_registered_with_one_is_found_from_all_by_what_it_is_and_by_id) {
    hosts all(20);
    all.net.run_for(3s);
    std::set<resource_id> ids;
    for (std::size_t i = 0; i < all.size(); ++i)
        ids.insert(all.add_resource(i, {{"type", "server"}, {"at", std::to_string(i)}}));
    EXPECT_EQ(ids.size(), all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
        const std::string other = std::to_string((i + 7) % all.size());
        attribute_list query{{"at", other}};
        query.ask("type");
        const auto found = all.find(i, query);
        ASSERT_TRUE(found) << i;
        EXPECT_EQ(found->what.text("type"), "server");
        const auto same = all.in(i, [&](context& here) {
            attribute_list what;
            what.ask("at");
            return here.find(found->id, what);
        });
        ASSERT_TRUE(same);
        EXPECT_EQ(same->what.text("at"), other);
        EXPECT_FALSE(all.find(i, {{"at", "nowhere"}}));
    }
}

TEST(ring, a_search_finds_what_all_have_and_each_once) {
    hosts all(15);
    all.net.run_for(3s);
    std::set<std::string> expected;
    for (std::size_t i = 0; i < all.size(); ++i) {
        for (std::size_t k = 0; k < i; ++k) {
            const std::string n = std::to_string(i) + "." + std::to_string(k);
            all.add_resource(i, {{"type", "x"}, {"n", n}});
            expected.insert(n);
        }
    }
    for (const std::size_t from : {0, 7, 14}) {
        std::multiset<std::string> seen;
        all.in(from, [&](context& here) {
            attribute_list query{{"type", "x"}};
            query.ask("n");
            for (const found_resource& each : here.search(query))
                seen.emplace(each.what.text("n"));
        });
        EXPECT_EQ(seen.size(), expected.size());
        EXPECT_EQ(std::set<std::string>(seen.begin(), seen.end()), expected);
    }
}

TEST(ring, a_search_goes_on_when_servers_of_it_die) {
    hosts all(15);
    all.net.run_for(3s);
    for (std::size_t i = 0; i < all.size(); ++i)
        for (int k = 0; k < 10; ++k)
            all.add_resource(i, {{"type", "x"}, {"at", std::to_string(i)}});
    std::map<std::string, int> seen;
    all.in(0, [&](context& here) {
        attribute_list query{{"type", "x"}};
        query.ask("at");
        int count = 0;
        for (const found_resource& each : here.search(query)) {
            ++seen[std::string(each.what.text("at"))];
            if (++count == 40)
                for (const char* gone : {"host3", "host4"})
                    all.net.kill(gone);
        }
    });
    for (std::size_t i = 0; i < all.size(); ++i) {
        const int of_it = seen[std::to_string(i)];
        if (i == 3 || i == 4) {
            EXPECT_LT(of_it, 10);
        } else {
            EXPECT_EQ(of_it, 10) << i;
        }
    }
}

TEST(ring, a_watch_tells_of_what_all_hosts_have_and_of_hosts_that_come_and_go) {
    hosts all(8);
    all.net.run_for(3s);
    for (std::size_t i = 0; i < 4; ++i)
        all.add_resource(i, {{"type", "x"}, {"at", std::to_string(i)}});
    std::multiset<std::string> there;
    resource_watch watch = all.in(2, [&](context& here) {
        attribute_list query{{"type", "x"}};
        query.ask("at");
        return here.watch(query, [&](const resource_change& change) {
            const std::string at(change.which.what.text("at"));
            if (change.what == resource_change::kind::appeared) {
                there.insert(at);
            } else {
                there.erase(there.find(at));
            }
        });
    });
    using set = std::multiset<std::string>;
    all.net.run_for(1s);
    EXPECT_EQ(there, (set{"0", "1", "2", "3"}));
    const resource_id brief = all.add_resource(6, {{"type", "x"}, {"at", "6"}});
    all.add_resource(7, {{"type", "y"}, {"at", "7"}});
    all.net.run_for(1s);
    EXPECT_EQ(there, (set{"0", "1", "2", "3", "6"}));
    all.in(6, [&](context& here) { here.core().remove(brief); });
    all.net.run_for(1s);
    EXPECT_EQ(there, (set{"0", "1", "2", "3"}));
    all.net.kill("host1");
    all.net.run_for(4s);
    EXPECT_EQ(there, (set{"0", "2", "3"}));
    all.add();
    all.net.run_for(3s);
    all.add_resource(8, {{"type", "x"}, {"at", "8"}});
    all.net.run_for(2s);
    EXPECT_EQ(there, (set{"0", "2", "3", "8"}));
    all.net.cut("host3");
    all.net.run_for(20s);
    EXPECT_EQ(there, (set{"0", "2", "8"}));
    all.in(2, [&](context&) { watch.end(); });
    all.add_resource(6, {{"type", "x"}, {"at", "6"}});
    all.net.run_for(2s);
    EXPECT_EQ(there, (set{"0", "2", "8"}));
}

TEST(ring, messages_reach_resources_of_other_hosts) {
    hosts all(5, {.with_roles = true});
    all.net.run_for(3s);
    const resource_id box = all.in(3, [](context& here) {
        return here.add({{"type", "box"}}).release();
    });
    all.in(1, [&](context& here) { here.self().send(box, 5, "hello"); });
    all.in(3, [&](context& here) { here.self().send(box, 6, "there"); });
    all.net.kill("userhost3");
    all.net.run_for(1s);
    EXPECT_FALSE(all.find(1, {{"type", "box"}}));
    EXPECT_EQ(all.in(1,
                     [&](context& here) {
                         try {
                             here.self().send(box, 5, "hello");
                         } catch (const error& why) {
                             return why.code().code;
                         }
                         return errc::ok;
                     }),
              errc::not_found);
}

TEST(ring, ids_of_one_server_are_never_those_of_another) {
    hosts all(3);
    std::set<resource_id> ids;
    for (int round = 0; round < 3; ++round) {
        for (std::size_t i = 0; i < all.size(); ++i) {
            all.in(i, [&](context& here) {
                for (int k = 0; k < (conformance::slow_build ? 3'000 : 30'000); ++k)
                    EXPECT_TRUE(ids.insert(here.add({}).release()).second);
            });
        }
    }
}

}  // namespace
}  // namespace amalgam
