#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>
#include <amalgam/directory/context.hpp>
#include <amalgam/directory/directory_server.hpp>
#include <amalgam/fabric/loop.hpp>

#include "directory/context_core.hpp"
#include "directory/resource_store.hpp"
#include "directory/ring_procedures.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

/// Hosts on a network in virtual time: each has a directory server and a context.
class hosts {
public:
    struct how {
        std::uint64_t seed = 0;  ///< 0: its number.
        bool in_one = false;     ///< Its context is in the directory's process.
    };
    explicit hosts(std::size_t count, std::string secret = {}) : secret_(std::move(secret)) {
        net.delay(50us, 150us);
        for (std::size_t i = 0; i < count; ++i)
            add();
    }

    void add() { add({}); }
    void add(const how& like) {
        const std::string name = "host" + std::to_string(all_.size());
        auto one = std::make_unique<host>();
        one->secret = secret_;
        one->serves = std::make_unique<engine>(net.port(name));
        if (!like.in_one) one->uses = std::make_unique<engine>(net.port("user" + name));
        directory_options options;
        options.ring.seed = like.seed != 0 ? like.seed : all_.size() + 1;
        options.secret = secret_;
        if (!all_.empty()) options.ring.others = {"loop://host0"};
        one->directory = std::make_unique<directory_server>(*one->serves, options);
        all_.push_back(std::move(one));
    }
    template <typename Work>
    auto in(std::size_t which, Work work) {
        host& where = *all_[which];
        engine& user = where.uses ? *where.uses : *where.serves;
        auto done = user.spawn([&where, &user, work = std::move(work)]() mutable {
            if (!where.here) {
                where.here = std::make_unique<context>(
                    user,
                    context_options{.directory = where.serves->address(), .secret = where.secret});
            }
            return work(*where.here);
        });
        for (int i = 0; i < 1000 && !done.ready(); ++i)
            net.run_for(10ms);
        EXPECT_TRUE(done.ready());
        return done.get();
    }
    std::optional<found_resource> find(std::size_t from, const attribute_list& query) {
        return in(from, [&](context& here) { return here.find(query); });
    }
    resource_id add_resource(std::size_t at, const attribute_list& what) {
        return in(at, [&](context& here) { return here.add(what).release(); });
    }
    /// Opens a context there, and does not wait for that.
    future<bool> begin_to_use(std::size_t which) {
        host& where = *all_[which];
        return where.uses->spawn([&where] {
            try {
                const context brief(*where.uses, {.directory = where.serves->address()});
                return true;
            } catch (const error&) {
                return false;
            }
        });
    }
    std::size_t contexts_at(std::size_t which) const { return all_[which]->directory->contexts(); }
    std::size_t known_by(std::size_t which) const { return all_[which]->directory->servers(); }
    std::size_t size() const { return all_.size(); }

    loop_network net{{.seed = 7}};

private:
    struct host {
        std::unique_ptr<engine> serves, uses;
        std::unique_ptr<directory_server> directory;
        std::unique_ptr<context> here;
        std::string secret;
    };
    std::string secret_;
    std::vector<std::unique_ptr<host>> all_;
};

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
    hosts all(5, "swordfish");
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

TEST(ring, a_killed_server_is_asked_no_more_and_missed_by_nobody) {
    hosts all(20);
    all.net.run_for(3s);
    all.add_resource(19, {{"at", "19"}});
    all.add_resource(4, {{"at", "4"}});
    for (const char* each : {"host4", "host5", "host6"})
        all.net.kill(each);
    // Before anybody has noticed: others are asked instead of those in the trees.
    for (std::size_t i = 7; i < 19; ++i) {
        EXPECT_TRUE(all.find(i, {{"at", "19"}})) << i;
        EXPECT_FALSE(all.find(i, {{"at", "4"}})) << i;
    }
    all.net.run_for(3s);
    for (std::size_t i = 7; i < all.size(); ++i)
        EXPECT_EQ(all.known_by(i), all.size() - 3);
}

TEST(ring, a_process_that_dies_before_its_directory_has_ids_leaves_nothing) {
    hosts all(2);
    all.net.run_for(3s);
    all.add();
    const auto opened = all.begin_to_use(2);
    all.net.run_for(20ms);  // It claims its ids.
    EXPECT_FALSE(opened.ready());
    all.net.kill("userhost2");
    all.net.run_for(2s);
    EXPECT_EQ(all.contexts_at(2), 0u);
}

TEST(ring, a_server_that_was_cut_off_comes_back) {
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

TEST(ring, two_halves_that_were_parted_become_one_again) {
    hosts all(10);
    all.net.run_for(3s);
    // Host 0, whom all others are told of, stays with those that are not cut off.
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

/// Seeds of two servers that choose the same range of ids first, the one with the lower key first.
std::pair<std::uint64_t, std::uint64_t> seeds_of_the_same_range() {
    std::map<std::uint64_t, std::uint64_t> seen;
    const auto key = [](std::uint64_t seed) { return seeded_random(seed)() | 1; };
    for (std::uint64_t seed = 100; seed < 10000; ++seed) {
        seeded_random chance(seed);
        (void)chance();
        const auto [at, fresh] = seen.emplace(chance.below(detail::resource_store::ranges), seed);
        if (fresh) continue;
        return key(at->second) < key(seed) ? std::pair(at->second, seed)
                                           : std::pair(seed, at->second);
    }
    return {};
}

std::uint32_t range_of(resource_id id) {
    return static_cast<std::uint32_t>(id) / detail::resource_store::ids_per_range;
}

TEST(ring, servers_that_came_to_own_the_same_ids_while_they_were_parted_keep_them_apart) {
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

TEST(ring, questions_go_round_in_no_circles_whatever_addresses_members_give) {
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
    EXPECT_TRUE(all.find(0, {{"at", "1"}}));
    EXPECT_FALSE(all.find(0, {{"at", "nowhere"}}));
    EXPECT_LT(all.net.operations() - before, 300u);
    all.net.run_for(30s);
    EXPECT_EQ(all.known_by(0), 2u) << "nobody is there who answers by those keys";
    EXPECT_TRUE(all.find(0, {{"at", "1"}}));
}

TEST(ring, ids_of_one_server_are_never_those_of_another) {
    hosts all(3);
    std::set<resource_id> ids;
    for (int round = 0; round < 3; ++round) {
        for (std::size_t i = 0; i < all.size(); ++i) {
            all.in(i, [&](context& here) {
                for (int k = 0; k < 30000; ++k)
                    EXPECT_TRUE(ids.insert(here.add({}).release()).second);
            });
        }
    }
}

}  // namespace
}  // namespace amalgam
