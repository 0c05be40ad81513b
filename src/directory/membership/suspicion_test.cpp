#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <amalgam/core/random.hpp>

#include "directory/membership/hosts.hpp"
#include "seeded_runs.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

std::string host(std::size_t number) {
    return "host" + std::to_string(number);
}

/// Hosts with a resource each, some of which watch.
class watched_hosts : public hosts {
public:
    explicit watched_hosts(std::size_t count, std::set<std::size_t> watchers) : hosts(count) {
        net.run_for(3s);
        for (std::size_t i = 0; i < count; ++i)
            add_resource(i, {{"type", "x"}, {"at", std::to_string(i)}});
        for (const std::size_t each : watchers) {
            auto& view = views_.emplace_back(std::make_unique<view_of_one>());
            view->watch = in(each, [&](context& here) {
                attribute_list query{{"type", "x"}};
                query.ask("at");
                return here.watch(query, [&seen = *view](const resource_change& change) {
                    const std::string at(change.which.what.text("at"));
                    if (change.what == resource_change::kind::appeared) {
                        EXPECT_TRUE(seen.there.insert(at).second) << at << " appeared twice";
                    } else {
                        EXPECT_EQ(seen.there.erase(at), 1u) << at << " went twice";
                        ++seen.gone;
                    }
                });
            });
        }
        net.run_for(2s);
        for (const auto& each : views_)
            EXPECT_EQ(each->there.size(), count);
    }
    ~watched_hosts() {
        for (const auto& each : views_)
            each->watch = {};
    }
    std::size_t gone() const {
        std::size_t all = 0;
        for (const auto& each : views_)
            all += each->gone;
        return all;
    }
    bool everybody_sees(const std::set<std::string>& those) const {
        return std::all_of(views_.begin(), views_.end(),
                           [&](const auto& each) { return each->there == those; });
    }

private:
    struct view_of_one {
        std::set<std::string> there;
        std::size_t gone = 0;
        resource_watch watch;
    };
    std::vector<std::unique_ptr<view_of_one>> views_;
};

TEST(ring_suspicion, a_server_that_is_slow_is_not_lost_as_long_as_it_answers_in_time) {
    constexpr std::size_t users = 20;
    watched_hosts all(4, {1});
    const std::string home = "loop://" + host(2);
    std::vector<std::unique_ptr<engine>> engines;
    std::vector<std::unique_ptr<context>> contexts;
    for (std::size_t i = 0; i < users; ++i) {
        engine& own = *engines.emplace_back(
            std::make_unique<engine>(all.net.port("busy" + std::to_string(i))));
        auto opened = own.spawn(
            [&] { return std::make_unique<context>(own, context_options{.directory = home}); });
        all.net.run_for(100ms);
        contexts.push_back(opened.get());
    }
    all.net.processing(host(2), 5ms);
    const auto begun = all.net.now();
    std::vector<clock::duration> took(users);
    std::vector<future<void>> asked;
    for (std::size_t i = 0; i < users; ++i)
        asked.push_back(engines[i]->spawn([&, i] {
            EXPECT_TRUE(contexts[i]->find({{"at", "2"}}));
            took[i] = all.net.now() - begun;
        }));
    all.net.run_for(5s);
    std::sort(took.begin(), took.end());
    EXPECT_GE(took.front(), 5ms);
    EXPECT_GE(took.back(), users * 5ms);  // After all the others.
    EXPECT_EQ(all.gone(), 0u);
    EXPECT_TRUE(all.everybody_sees({"0", "1", "2", "3"}));
    all.net.processing(host(2), 0ms);
    for (std::size_t i = 0; i < users; ++i) {
        asked[i].get();
        (void)engines[i]->spawn([&contexts, i] { contexts[i].reset(); });
    }
    all.net.run_for(1s);
}

TEST(ring_suspicion, a_bad_link_between_two_servers_takes_neither_from_the_others) {
    for (const bool one_way : {true, false}) {
        watched_hosts all(6, {3});
        for (std::size_t i = 0; i < 6; ++i) {  // In either direction, whoever checks whom.
            const std::size_t from = i, to = (i + 1) % 6;
            if (from == 3 || to == 3) continue;
            all.net.cut(host(from), host(to));
            if (!one_way) all.net.cut(host(to), host(from));
            for (int second = 0; second < 20; ++second) {
                all.net.run_for(1s);
                for (std::size_t k = 0; k < all.size(); ++k)
                    ASSERT_EQ(all.known_by(k), all.size()) << k << " after " << second << " s";
            }
            all.net.heal(host(from), host(to));
            if (!one_way) all.net.heal(host(to), host(from));
        }
        EXPECT_EQ(all.gone(), 0u);
    }
}

TEST(ring_suspicion, a_server_that_hears_nobody_is_given_up_by_all_and_gives_up_nobody_for_others) {
    watched_hosts all(7, {0, 3});
    for (std::size_t i = 0; i < 7; ++i)
        if (i != 5) all.net.cut(host(i), host(5));  // Its own messages still reach them.
    all.net.run_for(15s);
    for (const std::size_t i : {0, 1, 2, 3, 4, 6})
        EXPECT_EQ(all.known_by(i), 6u) << i;
    EXPECT_EQ(all.gone(), 2u);
    for (std::size_t i = 0; i < 7; ++i)
        if (i != 5) all.net.heal(host(i), host(5));
    all.net.run_for(40s);
    for (std::size_t i = 0; i < 7; ++i)
        EXPECT_EQ(all.known_by(i), 7u) << i;
    EXPECT_EQ(all.gone(), 2u) << "who was cut off has made others believe that more were gone";
}

TEST(ring_suspicion, a_silent_server_is_gone_for_all_within_three_periods) {
    for (const std::size_t count : {2, 3, 10}) {
        hosts all(count);
        all.net.run_for(3500ms);
        all.net.cut(host(count - 1));
        all.net.run_for(3s);
        for (std::size_t i = 0; i + 1 < count; ++i)
            EXPECT_EQ(all.known_by(i), count - 1) << i << " of " << count;
    }
}

TEST(ring_suspicion,
     servers_that_die_together_are_missed_sooner_where_nobody_is_left_to_confirm_it) {
    for (const std::size_t count : {3, 4}) {
        hosts all(count);
        all.net.run_for(3s);
        for (std::size_t i = 1; i < count; ++i)
            all.net.kill(host(i));
        all.net.run_for(count == 3 ? 3s : 15s);
        EXPECT_EQ(all.known_by(0), 1u) << count;
    }
}

/// Links fail and recover at random, and one host dies: as long as each host is reached by most
/// others, no live host is ever reported gone, and the dead one is, to all.
TEST(ring_suspicion, random_one_way_cuts_make_no_watch_flap_and_hide_no_death) {
    for (const std::uint64_t seed : seeded_runs(6)) {
        SCOPED_TRACE(seed);
        seeded_random chance(seed);
        constexpr std::size_t count = 9, dies = 8;
        watched_hosts all(count, {0, 4});
        std::vector<std::pair<std::size_t, std::size_t>> cuts;
        for (int step = 0; step < 40; ++step) {
            if (cuts.size() < 3 && chance.chance(0.6)) {
                const std::size_t from = chance.below(count);
                const std::size_t to = (from + 1 + chance.below(count - 1)) % count;
                const auto touches = [&](const auto& each) {
                    return each.first == from || each.second == from || each.first == to ||
                           each.second == to;
                };
                if (std::none_of(cuts.begin(), cuts.end(), touches)) {
                    all.net.cut(host(from), host(to));
                    cuts.emplace_back(from, to);
                }
            } else if (!cuts.empty()) {
                std::swap(cuts[chance.below(cuts.size())], cuts.back());
                all.net.heal(host(cuts.back().first), host(cuts.back().second));
                cuts.pop_back();
            }
            all.net.run_for(std::chrono::milliseconds(chance.below(4000)));
            ASSERT_EQ(all.gone(), 0u) << "at step " << step;
        }
        for (const auto& [from, to] : cuts)
            all.net.heal(host(from), host(to));
        all.net.kill(host(dies));
        all.net.run_for(6s);
        std::set<std::string> left;
        for (std::size_t i = 0; i + 1 < count; ++i) {
            EXPECT_EQ(all.known_by(i), count - 1) << i;
            left.insert(std::to_string(i));
        }
        EXPECT_TRUE(all.everybody_sees(left));
        EXPECT_EQ(all.gone(), 2u);
    }
}

}  // namespace
}  // namespace amalgam
