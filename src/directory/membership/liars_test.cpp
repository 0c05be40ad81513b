// Ring members that lie.
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <amalgam/core/random.hpp>
#include <amalgam/tasks/ult.hpp>

#include "directory/membership/hosts.hpp"
#include "directory/membership/procedures.hpp"
#include "directory/protocol/broadcast_packet.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;
using namespace detail;

constexpr std::uint64_t liars_key = 12345;

/// A server that host0 knows and queries.
class liar {
public:
    explicit liar(hosts& all) : all_(all), on_(all.net.port("liar")) {
        on_.define<in_ring::ping>(library_name{in_ring::ping_name},
                                  [](std::uint64_t, std::uint32_t) {
                                      return alive_answer{true, liars_key, 0};
                                  });
        on_.define<in_ring::open_watcher>(library_name{in_ring::open_watcher_name}, [] {
            return reply<resource_id>{errc::ok, {}, resource_id{1u << 31}};
        });
        on_.define<at_directory::watch>(library_name{at_directory::watch_name},
                                        [this](resource_id, std::uint32_t which, attribute_view) {
                                            watch = which;
                                            asker_ = call_context::current().from();
                                            return reply<bool>{errc::ok, {}, true};
                                        });
    }
    void join() { say<in_ring::join>(in_ring::join_name, me()); }
    static member me() { return {liars_key, 1, {"loop://liar"}, {}, {}}; }
    template <typename Signature, typename... A>
    void say(std::string_view name, A... arguments) {
        auto said = on_.spawn([&] {
            // Reports must use the path over which the watch was requested.
            const peer host = asker_ ? *asker_ : on_.lookup("loop://host0");
            on_.procedure<Signature>(name).on(host).post(arguments...);
        });
        while (!said.ready())
            all_.net.run_for(1ms);
        said.get();
    }
    /// Compares tables with host0: the answer to these.
    ring_news compare(const ring_news& mine) {
        auto said = on_.spawn([&] {
            return on_.procedure<in_ring::compare>(in_ring::compare_name)
                .on(on_.lookup("loop://host0"))(mine);
        });
        while (!said.ready())
            all_.net.run_for(1ms);
        return said.get();
    }
    void tell(resource_change::kind what, std::uint32_t id, const attribute_list& values = {}) {
        say<in_ring::change>(in_ring::change_name, liars_key, watch, what,
                             found_values{resource_id{id}, resource_id{id}, values});
    }
    engine& on() noexcept { return on_; }

    std::uint32_t watch = 0;  ///< Of host0 at this server.

private:
    hosts& all_;
    engine on_;
    std::optional<peer> asker_;
};

TEST(ring_liars, a_server_contradicts_what_others_say_of_it) {
    hosts all(2);
    all.net.run_for(3s);
    const resource_id box = all.add_resource(1, {});
    liar one(all);
    member wrong{seeded_random(2)() | 1, 1000, {"loop://host1"}, {}, {}};  // Without id ranges.
    one.say<in_ring::join>(in_ring::join_name, wrong);
    EXPECT_FALSE(all.in(0, [&](context& here) { return here.find(box); }));
    all.net.run_for(10s);
    EXPECT_TRUE(all.in(0, [&](context& here) { return here.find(box); }));
    EXPECT_EQ(all.known_by(0), 2u);
}

TEST(ring_liars, a_server_that_is_said_to_be_gone_stays_while_it_answers) {
    hosts all(2);
    all.net.run_for(3s);
    liar one(all);
    one.join();
    all.net.run_for(1s);
    ring_news lie;
    for (const member& each : one.compare({}).came)
        if (each.addresses.front() == "loop://host1") lie.gone.push_back({each.key, each.version});
    ASSERT_EQ(lie.gone.size(), 1u);
    one.compare(lie);
    for (int i = 0; i < 200; ++i) {
        all.net.run_for(10ms);
        ASSERT_EQ(all.known_by(0), 3u) << i;
    }
}

/// How long host0 believes in host1, which is silent, if its only helper says this of it.
clock::duration believed_in(sign answer) {
    hosts all(2);
    all.net.run_for(3s);
    liar helper(all);
    helper.on().define<in_ring::ping_req>(library_name{in_ring::ping_req_name},
                                          [=](std::uint64_t, std::uint32_t) { return answer; });
    helper.join();
    all.net.run_for(1s);
    EXPECT_EQ(all.known_by(0), 3u);
    all.net.cut("host1");
    const auto begun = all.net.now();
    for (int i = 0; i < 1000 && all.known_by(0) == 3; ++i)
        all.net.run_for(20ms);
    EXPECT_EQ(all.known_by(0), 2u);
    return all.net.now() - begun;
}

/// How long one of two servers believes in the other after this.
clock::duration missed_after(void (*what)(hosts&)) {
    hosts all(2);
    all.net.run_for(3s);
    EXPECT_EQ(all.known_by(0), 2u);
    what(all);
    const auto begun = all.net.now();
    for (int i = 0; i < 1000 && all.known_by(0) == 2; ++i)
        all.net.run_for(20ms);
    EXPECT_EQ(all.known_by(0), 1u);
    return all.net.now() - begun;
}

TEST(ring_liars, a_server_that_is_silent_is_given_more_time_than_one_that_is_gone) {
    EXPECT_GT(missed_after([](hosts& all) { all.net.cut("host1"); }),
              missed_after([](hosts& all) { all.net.kill("host1"); }) + 300ms);
}

TEST(ring_liars, who_does_not_know_a_server_confirms_no_suspicion_of_it) {
    EXPECT_GT(believed_in(sign::unknown), believed_in(sign::silent) + 100ms);
}

TEST(ring_liars, what_one_tells_a_watch_of_takes_no_more_than_its_share) {
    hosts all(0);
    all.add({.limits = {.bytes = 20'000}});
    liar one(all);
    one.join();
    std::size_t seen = 0;
    resource_watch watch;
    all.in(0, [&](context& here) {
        watch = here.watch(attribute_list{{"type", "x"}}.ask("y"),
                           [&](const resource_change&) { ++seen; });
        return 0;
    });
    all.net.run_for(2s);
    ASSERT_NE(one.watch, 0u);
    using kind = resource_change::kind;
    const attribute_list large{{"y", std::string(700, 'y')}};
    for (std::uint32_t id = 1; id <= 100; ++id)
        one.tell(kind::appeared, id, large);
    all.net.run_for(100ms);
    EXPECT_GT(seen, 5u);
    EXPECT_LE(seen, 10u);
    EXPECT_EQ(all.counted(0, "directory.told_dropped"), 100 - seen);
    const std::size_t before = seen;
    one.tell(kind::gone, 1);
    one.tell(kind::appeared, 200, large);
    all.net.run_for(100ms);
    EXPECT_EQ(seen, before + 2);
    for (std::uint32_t id = 2; id <= 200; ++id)
        one.tell(kind::gone, id);
    for (std::uint32_t id = 1; id <= 5; ++id)
        one.tell(kind::appeared, id, large);
    all.net.run_for(100ms);
    EXPECT_EQ(seen, 2 * before + 7) << "all of it came back";
    std::size_t again = 0;
    all.in(0, [&](context& here) {
        watch = here.watch(attribute_list{{"type", "x"}}.ask("y"),
                           [&](const resource_change&) { ++again; });
        return 0;
    });
    all.net.run_for(2s);
    for (std::uint32_t id = 1; id <= 100; ++id)
        one.tell(kind::appeared, id, large);
    all.net.run_for(100ms);
    EXPECT_EQ(again, before) << "the watch that ended still counts";
    all.in(0, [&](context&) {
        watch.end();
        return 0;
    });
}

TEST(ring_liars, what_is_here_is_not_gone_because_another_server_says_so) {
    hosts all(1);
    liar one(all);
    one.join();
    std::size_t gone = 0, appeared = 0;
    resource_watch watch;
    const resource_id box = all.add_resource(0, {{"type", "x"}});
    all.in(0, [&](context& here) {
        watch = here.watch({{"type", "x"}}, [&](const resource_change& each) {
            ++(each.what == resource_change::kind::gone ? gone : appeared);
        });
        return 0;
    });
    all.net.run_for(2s);
    ASSERT_NE(one.watch, 0u);
    one.tell(resource_change::kind::appeared, static_cast<std::uint32_t>(box));
    one.tell(resource_change::kind::gone, static_cast<std::uint32_t>(box));
    all.net.run_for(100ms);
    EXPECT_EQ(appeared, 1u);
    EXPECT_EQ(gone, 0u);
    all.in(0, [&](context&) {
        watch.end();
        return 0;
    });
}

TEST(ring_liars, nobody_tells_of_changes_for_another_server) {
    hosts all(2);
    all.net.run_for(3s);
    all.add_resource(1, {{"type", "x"}});
    liar one(all);
    found_values box;
    std::size_t told = 0;
    resource_watch watch;
    all.in(0, [&](context& here) {
        watch = here.watch({{"type", "x"}}, [&](const resource_change& each) {
            ++told;
            box = {each.which.id, each.which.context, {}};
        });
        return 0;
    });
    all.net.run_for(2s);
    ASSERT_EQ(told, 1u);
    const std::uint64_t key_of_host1 = seeded_random(2)() | 1;
    for (std::uint32_t number = 1; number <= 3; ++number)
        one.say<in_ring::change>(in_ring::change_name, key_of_host1, number,
                                 resource_change::kind::gone, box);
    all.net.run_for(100ms);
    EXPECT_EQ(told, 1u);
    all.in(0, [&](context&) {
        watch.end();
        return 0;
    });
}

TEST(ring_liars, a_member_with_the_address_of_another_ends_no_watch_there) {
    hosts all(2);
    all.net.run_for(3s);
    constexpr std::size_t count = 20;
    std::size_t told = 0;
    std::vector<resource_watch> watches;
    all.in(0, [&](context& here) {
        for (std::size_t i = 0; i < count; ++i)
            watches.push_back(here.watch({{"type", "x"}}, [&](const resource_change&) { ++told; }));
        return 0;
    });
    all.net.run_for(2s);
    liar one(all);
    one.say<in_ring::join>(in_ring::join_name, member{99, 1, {"loop://host1"}, {}, {}});
    all.net.run_for(1ms);  // It has received some watches, not all.
    one.say<in_ring::tell>(in_ring::tell_name, ring_part{liars_key, 1, 0},
                           ring_news{{}, {{99, 1}}});
    all.net.run_for(100ms);
    all.add_resource(1, {{"type", "x"}});
    all.net.run_for(100ms);
    EXPECT_EQ(told, count);
    all.in(0, [&](context&) {
        watches.clear();
        return 0;
    });
}

TEST(ring_liars, changes_that_are_not_told_yet_may_hold_as_many_bytes_as_a_context) {
    hosts all(0);
    all.add({.limits = {.bytes = 20'000}});
    std::vector<resource_watch> watches;
    std::size_t told = 0, ended = 0;
    all.in(0, [&](context& here) {
        const resource box = here.add({{"type", "x"}, {"y", std::string(4000, 'y')}});
        for (int i = 0; i < 6; ++i)
            watches.push_back(here.watch(attribute_list{{"type", "x"}}.ask("y"),
                                         [&](const resource_change& each) {
                                             ++told;
                                             ended += each.what == resource_change::kind::ended;
                                         }));
        this_task::sleep_for(10ms);
        EXPECT_EQ(told, 6u);
        box.set({{"y", std::string(4100, 'z')}});  // Reported to each watch.
        this_task::sleep_for(10ms);
        EXPECT_EQ(ended, 6u);
        EXPECT_EQ(told, 12u);
        watches.clear();
        return 0;
    });
}

TEST(ring_liars, a_search_asks_each_server_once_for_more_whatever_it_answers) {
    hosts all(1);
    std::size_t asked = 0;
    liar one(all);
    one.on().define<in_ring::search>(
        library_name{in_ring::search_name}, [](ring_part, attribute_view) {
            return first_answers{std::vector<first_answer>(50, first_answer{liars_key, 7, {}}), 0};
        });
    one.on().define<in_ring::next>(library_name{in_ring::next_name}, [&](std::uint64_t) {
        ++asked;
        return next_answer{false, {}, 0};  // Claims to have more, but returns none.
    });
    one.join();
    all.net.run_for(1s);
    std::size_t seen = 0;
    all.in(0, [&](context& here) {
        auto search = here.search({{"type", "x"}});
        while (seen < 100 && search.next())
            ++seen;
        return 0;
    });
    EXPECT_EQ(seen, 0u);
    EXPECT_EQ(asked, 1u);
}

TEST(ring_liars, many_who_claim_an_id_and_are_silent_delay_a_query_for_it_no_longer_than_one) {
    hosts all(2);
    all.net.run_for(3s);
    const resource_id box = all.add_resource(1, {});
    liar one(all);
    std::vector<std::unique_ptr<port>> silent;
    const std::uint32_t range = static_cast<std::uint32_t>(box) >> 16;
    const auto claim = [&](std::uint32_t which) {
        for (std::uint64_t i = 0; i < 8; ++i) {
            const std::string name = "mute" + std::to_string(silent.size());
            silent.push_back(all.net.port(name));
            one.say<in_ring::join>(
                in_ring::join_name,
                member{silent.size() * 2, 1, {"loop://" + name}, {which}, {which}});
        }
    };
    claim(range);
    claim(range + 1);
    const auto start = all.net.now();
    EXPECT_TRUE(all.in(0, [&](context& here) { return here.find(box); }));
    EXPECT_FALSE(all.in(0, [&](context& here) {
        return here.find(resource_id{static_cast<std::uint32_t>(box) + (1u << 16)});
    }));
    EXPECT_LE(all.net.now() - start, 3 * ring_options{}.answer_limit);
}

TEST(ring_liars, what_others_have_a_server_do_is_bounded) {
    hosts all(1);
    liar one(all);
    const auto silent = all.net.port("mute");
    one.join();
    one.say<in_ring::join>(in_ring::join_name, member{99, 1, {"loop://mute"}, {}, {}});
    auto flood = one.on().spawn([&] {
        const auto host = one.on().lookup("loop://host0");
        const auto tell = one.on().procedure<in_ring::tell>(in_ring::tell_name).on(host);
        for (int i = 0; i < 3000; ++i)
            tell.post(ring_part{liars_key, 1, 0}, ring_news{});
    });
    while (!flood.ready())
        all.net.run_for(1ms);
    flood.get();
    all.net.run_for(10ms);
    EXPECT_GT(all.counted(0, "directory.work_dropped"), 1500u);
    all.net.run_for(10s);
    const std::uint64_t before = all.counted(0, "directory.work_dropped");
    one.say<in_ring::tell>(in_ring::tell_name, ring_part{liars_key, 1, 0}, ring_news{});
    all.net.run_for(10ms);
    EXPECT_EQ(all.counted(0, "directory.work_dropped"), before);
}

TEST(ring_liars, strangers_who_are_met_at_once_are_bounded_when_a_server_is_alone_again) {
    hosts all(2, {.by_medium = true});
    all.net.run_for(3s);
    int running = 0, most = 0;
    liar one(all);
    one.on().define<in_ring::meet>(library_name{in_ring::meet_name}, [&](std::vector<std::string>) {
        struct counted {
            int& of;
            explicit counted(int& all) : of(all) { ++of; }
            ~counted() { --of; }
        } const mine(running);
        most = std::max(most, running);
        this_task::sleep_for(10s);
    });
    broadcast_packet packet;
    packet.addresses = {"loop://liar"};
    const auto medium = all.net.broadcast("liar");
    const auto shout = [&](std::uint64_t from) {
        packet.from = from;
        EXPECT_TRUE(medium->send(to_bytes(packet)));
    };
    for (std::uint64_t step = 0; step < 100; ++step) {
        for (int times = 0; times < 5; ++times)
            for (std::uint64_t each = 1; each <= 3; ++each)
                shout(each * 1000 + step / 10);
        for (std::uint64_t i = 0; i < 30; ++i)
            shout(1'000'000 + step * 100 + i);
        all.net.run_for(100ms);
        if (step == 20) all.net.kill("host1");
    }
    EXPECT_EQ(all.known_by(0), 1u);
    EXPECT_GT(most, 0);
    EXPECT_LE(most, 2 * 64) << "those that it waits for, and those that it has just given up";
}

}  // namespace
}  // namespace amalgam
