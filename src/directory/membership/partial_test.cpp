// Reports of missing answers.
#include <algorithm>
#include <string>
#include <vector>

#include <amalgam/core/random.hpp>

#include "directory/membership/hosts.hpp"
#include "directory/membership/procedures.hpp"
#include "directory/protocol/broadcast_packet.hpp"
#include "directory/resources/store.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

struct count_of_search {
    std::size_t found = 0;
    std::size_t missed = 0;
};
count_of_search search_all(context& here, const attribute_list& query) {
    auto search = here.search(query);
    count_of_search count;
    while (search.next())
        ++count.found;
    count.missed = search.missed();
    return count;
}
errc code_of_find(hosts& all, std::size_t from, const attribute_list& query) {
    return all.in(from, [&](context& here) { return here.try_find(query).code().code; });
}

TEST(ring_partial, a_search_or_query_says_whether_all_have_answered) {
    for (const bool by_medium : {false, true}) {
        hosts all(10, {.by_medium = by_medium});
        all.net.run_for(5s);
        for (std::size_t i = 0; i < all.size(); ++i)
            all.add_resource(i, {{"type", "x"}, {"at", std::to_string(i)}});
        const auto search = [&] {
            return all.in(1, [](context& here) { return search_all(here, {{"type", "x"}}); });
        };
        EXPECT_EQ(search().found, 10u);
        EXPECT_EQ(search().missed, 0u);
        EXPECT_EQ(code_of_find(all, 1, {{"at", "5"}}), errc::ok);
        EXPECT_EQ(code_of_find(all, 1, {{"at", "none"}}), errc::not_found);
        all.net.cut("host5");
        const auto partial = search();
        EXPECT_EQ(partial.found, 9u);
        EXPECT_GE(partial.missed, 1u);
        EXPECT_EQ(code_of_find(all, 1, {{"at", "5"}}), errc::timed_out);
        EXPECT_EQ(code_of_find(all, 1, {{"at", "6"}}), errc::ok);
        all.net.run_for(20s);
        EXPECT_EQ(all.known_by(1), 9u);
        EXPECT_EQ(search().missed, 0u) << "it is not there any more";
        EXPECT_EQ(code_of_find(all, 1, {{"at", "5"}}), errc::not_found);
    }
}

TEST(ring_partial, a_lookup_of_what_may_be_with_who_is_silent_says_so) {
    hosts all(4);
    all.net.run_for(3s);
    const resource_id box = all.add_resource(2, {{"type", "box"}});
    const auto code = [&](resource_id which) {
        return all.in(0, [&](context& here) {
            try {
                (void)here.lookup(which);
            } catch (const error& why) {
                return why.code().code;
            }
            return errc::ok;
        });
    };
    all.net.cut("host2");
    EXPECT_EQ(code(box), errc::timed_out);
    all.net.heal("host2");
    all.net.run_for(15s);
    EXPECT_EQ(code(box), errc::ok);
}

TEST(ring_partial, a_search_that_loses_a_directory_on_its_way_says_so) {
    hosts all(5);
    all.net.run_for(3s);
    for (std::size_t i = 0; i < all.size(); ++i)
        for (int k = 0; k < 10; ++k)
            all.add_resource(i, {{"type", "x"}});
    const auto count = all.in(0, [&](context& here) {
        auto search = here.search({{"type", "x"}});
        count_of_search so_far;
        while (search.next())
            if (++so_far.found == 20) all.net.kill("host3");
        so_far.missed = search.missed();
        return so_far;
    });
    EXPECT_LT(count.found, 50u);
    EXPECT_GE(count.found, 40u);
    EXPECT_EQ(count.missed, 1u);
}

TEST(ring_partial, what_is_ready_does_not_wait_for_who_is_silent) {
    hosts all(12);
    all.net.run_for(3s);
    for (std::size_t i = 1; i < all.size(); ++i)
        all.add_resource(i, {{"type", "x"}, {"at", std::to_string(i)}});
    // Each of the others in turn, including the first to be asked.
    for (const std::size_t cut : {1, 4, 7, 10}) {
        const std::string name = "host" + std::to_string(cut);
        all.net.cut(name);
        const auto start = all.net.now();
        all.in(0, [&](context& here) {
            auto search = here.search({{"type", "x"}});
            // Half of them: servers in one piece with the silent one may have to wait.
            for (int i = 0; i < 5; ++i)
                EXPECT_TRUE(search.next());
        });
        EXPECT_LT(all.net.now() - start, ring_options{}.answer_limit / 8) << cut;
        all.net.heal(name);
        all.net.run_for(15s);
    }
}

TEST(ring_partial, a_query_looks_at_so_many_at_once_and_finds_what_is_behind_them) {
    hosts all(2);
    all.net.run_for(3s);
    all.in(1, [](context& here) {
        for (int i = 0; i < 5000; ++i) {
            here.add({{"type", "x"}, {"color", "red"}}).release();
            here.add({{"type", "y"}, {"color", "blue"}, {"last", "no"}}).release();
        }
        here.add({{"type", "y"}, {"color", "blue"}, {"last", "yes"}}).release();
        for (int i = 0; i < 5000; ++i)
            here.add({{"last", "yes"}}).release();
    });
    const attribute_list query{{"type", "x"}, {"color", "blue"}};
    for (const std::size_t from : {0, 1}) {
        EXPECT_FALSE(all.find(from, query));
        const auto last = all.find(from, {{"type", "y"}, {"color", "blue"}, {"last", "yes"}});
        EXPECT_TRUE(last);
    }
}

TEST(ring_partial, an_answer_to_a_broadcast_counts_once_and_from_who_was_asked) {
    hosts all(2, {.by_medium = true});
    all.net.run_for(5s);
    const resource_id real = all.add_resource(1, {{"type", "x"}});
    engine stranger(all.net.port("stranger"));
    const auto listens = all.net.broadcast("stranger");
    listens->listen([&](const_bytes bytes) {
        const auto packet = detail::parse_packet(bytes);
        if (!packet || packet->what == detail::broadcast_packet::kind::here) return;
        const auto answer =
            stranger.procedure<detail::in_ring::answer>(detail::in_ring::answer_name);
        detail::first_answer made;
        made.found.id = resource_id{12345};
        for (const std::uint64_t key : {std::uint64_t{1}, packet->from, ~std::uint64_t{0}}) {
            made.server = key;
            answer.on(stranger.lookup("loop://host0")).post(packet->number, made);
        }
    });
    all.in(0, [&](context& here) {
        EXPECT_FALSE(here.find({{"type", "none"}}));
        auto search = here.search({{"type", "x"}});
        const auto first = search.next();
        EXPECT_TRUE(first && first->id == real);
        EXPECT_FALSE(search.next());
    });
}

TEST(ring_partial, a_watch_that_another_directory_refused_is_told_again) {
    hosts all(1);
    all.add({.limits = {.bytes = 1400}});
    all.net.run_for(3s);
    const std::string kinds[] = {std::string(700, 'a'), std::string(700, 'b')};
    std::vector<resource_id> seen;
    std::vector<resource_watch> watches;
    for (const std::string& kind : kinds) {
        watches.push_back(all.in(0, [&](context& here) {
            return here.watch({{"type", kind}}, [&](const resource_change& change) {
                seen.push_back(change.which.id);
            });
        }));
        all.net.run_for(1s);
    }
    const resource_id box = all.add_resource(1, {{"type", kinds[1]}});
    all.net.run_for(2s);
    const bool was_refused = seen.empty();
    all.in(0, [&](context&) { watches[0].end(); });
    all.net.run_for(3s);
    EXPECT_TRUE(was_refused) << "there was room for both";
    EXPECT_EQ(seen, (std::vector<resource_id>{box}));
    all.in(0, [&](context&) { watches.clear(); });
}

}  // namespace
}  // namespace amalgam
