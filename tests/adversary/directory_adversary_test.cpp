// Ring members, contexts and broadcast senders that are certified and speak the protocols of
// directories (docs/wire/directory.md), first mostly right and then wrong, against a directory
// server with good contexts and a good neighbor.
#include <chrono>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>
#include <amalgam/directory/context.hpp>
#include <amalgam/directory/directory_server.hpp>
#include <amalgam/fabric/loop.hpp>

#include "adversary/directory_liar.hpp"
#include "fabric/trust/tls/tls_testing.hpp"
#include "seeded_runs.hpp"

namespace amalgam::adversary {
namespace {

/// Small enough for a liar to reach all of them.
constexpr directory_limits limits{
    .contexts = 8, .resources = 40, .bytes = 100'000, .searches = 6, .watches = 6, .untold = 300};

struct host {
    std::unique_ptr<engine> runs;
    std::unique_ptr<directory_server> directory;
};

/// A process that uses a directory, and its resources.
struct user {
    std::unique_ptr<engine> runs;
    std::unique_ptr<context> here;
    resource box;
};

/// Keys cost time, and are the same for all.
const detail::test_lab& the_lab() {
    static const detail::test_lab one{};
    return one;
}

class ring_of_two {
public:
    explicit ring_of_two(std::uint64_t seed) : net_({.seed = seed}), dice_(seed) {
        net_.delay(50us, 150us);
        start(victim_, "victim");
        start(neighbour_, "neighbour");
        net_.run_for(3s);
        EXPECT_EQ(victim_.directory->servers(), 2u);
        start(good_, "good", "loop://victim");
        start(friend_, "friend", "loop://victim");
        start(far_, "far", "loop://neighbour");
        do_in(good_, [&] {
            watch_ = good_.here->watch(attribute_list{{"kind", "good"}}.ask("n"),
                                       [this](const resource_change& each) { note(each); });
        });
        net_.run_for(1s);
        EXPECT_TRUE(there_.contains(friend_.box.id()) && there_.contains(far_.box.id()));
    }
    ~ring_of_two() {
        do_in(good_, [&] { watch_.end(); });
        for (user* each : {&good_, &friend_, &far_})
            do_in(*each, [&] {
                each->box = {};
                each->here.reset();
            });
    }

    void suffer() {
        const known_world known = what_is_known();
        std::vector<future<void>> lying;
        {
            ring_liar member(net_.port("member"), known, dice_());
            guest_liar guest(net_.port("guest"), known, dice_());
            auto way = net_.port("sender");
            packet_liar sender(std::move(way), net_.broadcast("sender"), lab_.trust, known,
                               dice_());
            const auto begin = [&](auto& each) {
                lying.push_back(
                    each.on().spawn([&each, steps = 50 + dice_.below(250)] { each.run(steps); }));
            };
            if (dice_.chance(0.8)) begin(member);
            if (dice_.chance(0.8)) begin(guest);
            if (dice_.chance(0.8)) begin(sender);
            for (int i = 0; i < 10 && !testing::Test::HasFailure(); ++i) {
                net_.run_for(std::chrono::milliseconds(dice_.below(100)));
                expect_served();
                expect_bounded();
            }
            for (future<void>& each : lying)
                move_until("the end of a liar", [&] { return each.ready(); });
            EXPECT_LE(guest.got().resources, limits.resources);
            EXPECT_LE(guest.got().bytes, limits.bytes);
            EXPECT_LE(guest.got().searches, limits.searches);
            EXPECT_LE(guest.got().watches, limits.watches);
            for (const char* each : {"member", "guest", "sender"})
                net_.kill(each);
            net_.run_for(1s);
        }
        for (future<void>& each : lying)
            EXPECT_NO_THROW(each.get());
    }
    /// After all liars have stopped.
    void expect_recovered() {
        net_.run_for(60s);
        EXPECT_EQ(victim_.directory->contexts(), 2u);
        EXPECT_EQ(victim_.directory->resources(), 4u);
        EXPECT_EQ(victim_.directory->servers(), 2u);
        EXPECT_EQ(neighbour_.directory->servers(), 2u);
        expect_served();
        do_in(good_, [&] {
            const auto found = good_.here->find(attribute_list{{"kind", "good"}, {"n", "far"}});
            EXPECT_TRUE(found && found->id == far_.box.id());
            EXPECT_TRUE(good_.here->find(far_.box.id()));
        });
        do_in(far_, [&] {
            far_.box.send(good_.box.id(), 9, "from far", 1s);
            EXPECT_TRUE(far_.here->find(attribute_list{{"kind", "good"}, {"n", "friend"}}));
        });
        expect_message(9, "from far", far_.box.id());
        expect_watched(far_);
    }

private:
    void start(host& which, const std::string& name) {
        which.runs = std::make_unique<engine>(net_.port(name));
        directory_options options{.limits = limits};
        options.ring.trust = lab_.trust;
        options.ring.seed = dice_() | 1;
        options.ring.medium = net_.broadcast(name);
        if (name != "victim") options.ring.others = {"loop://victim"};
        which.directory = std::make_unique<directory_server>(*which.runs, options);
    }
    void start(user& who, const std::string& name, const std::string& directory) {
        who.runs = std::make_unique<engine>(net_.port(name));
        do_in(who, [&] {
            who.here = std::make_unique<context>(*who.runs, context_options{.directory = directory,
                                                                            .store_bytes = 100'000,
                                                                            .eager_bytes = 1000});
            who.box = who.here->add({{"kind", "good"}, {"n", name}});
        });
    }
    known_world what_is_known() {
        known_world all;
        all.directory = "loop://victim";
        all.contexts = {"loop://good", "loop://friend"};
        all.addresses = {
            "loop://victim", "loop://neighbour", "loop://good", "loop://nobody", "shm:x", "tcp://"};
        for (const user* each : {&good_, &friend_, &far_}) {
            all.ids.push_back(each->here->id());
            all.ids.push_back(each->box.id());
            // And ids that may be allocated next.
            all.ids.push_back(resource_id{static_cast<std::uint32_t>(each->box.id()) + 3});
        }
        for (int i = 0; i < 6; ++i)
            all.keys.push_back(dice_() | 1);
        return all;
    }

    // ---- time

    template <typename Condition>
    void move_until(const char* what, Condition reached) {
        for (int i = 0; i < 120'000 && !reached(); ++i)
            net_.run_for(1ms);
        ASSERT_TRUE(reached()) << what << " is waited for without end";
    }
    template <typename Work>
    void do_in(user& who, Work work) {
        auto done = who.runs->spawn([&] {
            try {
                work();
            } catch (const error& why) {
                ADD_FAILURE() << why.what();
            }
        });
        move_until("an honest call", [&] { return done.ready(); });
        done.get();
    }

    // ---- watches

    /// In a ULT of the good context.
    void note(const resource_change& change) {
        using kind = resource_change::kind;
        EXPECT_NE(change.what, kind::ended);
        if (change.what == kind::gone) {
            EXPECT_FALSE(stays(change.which.id)) << "it is there";
            there_.erase(change.which.id);
        } else {
            there_.insert(change.which.id);
        }
    }
    /// False reports about the neighbor's resources cannot be detected.
    bool stays(resource_id which) const {
        return which == good_.box.id() || which == friend_.box.id() || which == brief_;
    }
    void expect_watched(user& by) {
        resource one;
        do_in(by, [&] { one = by.here->add({{"kind", "good"}, {"n", "brief"}}); });
        const resource_id id = one.id();
        if (&by == &friend_) brief_ = id;
        move_until(&by == &far_ ? "news of what appeared elsewhere" : "news of what appeared",
                   [&] { return there_.contains(id); });
        brief_ = resource_id::none;
        do_in(by, [&] { one = {}; });
        move_until("news of what is gone", [&] { return !there_.contains(id); });
    }

    // ---- invariants

    void expect_message(std::int32_t tag, const std::string& content, resource_id from) {
        do_in(good_, [&] {
            const auto got = good_.box.receive_within(5s, {.from = from, .tag = tag});
            EXPECT_TRUE(got && got->content.text() == content) << "a message is lost";
        });
    }
    void expect_served() {
        ++served_;
        resource mine;
        do_in(good_, [&] {
            const std::string n = std::to_string(served_);
            mine = good_.here->add({{"kind", "mine"}, {"n", n}});
            attribute_list query{{"kind", "mine"}};
            query.ask("n");
            const auto found = good_.here->find(query);
            EXPECT_TRUE(found && found->id == mine.id() && found->what.text("n") == n);
            EXPECT_TRUE(good_.here->find(friend_.box.id(), {{"n", "friend"}}));
            std::set<resource_id> seen;
            auto search = good_.here->search({{"kind", "good"}});
            for (int i = 0; i < 20; ++i) {
                const auto each = search.next();
                if (!each) break;
                seen.insert(each->id);
            }
            EXPECT_TRUE(seen.contains(good_.box.id()) && seen.contains(friend_.box.id()));
            // Drops whatever else has arrived, to free its memory.
            for (const resource* each : {&good_.here->self(), &good_.box}) {
                while (const auto other = each->try_receive()) {
                    EXPECT_NE(other->from, good_.box.id());
                    EXPECT_NE(other->from, good_.here->id());
                }
            }
        });
        const std::string content(dice_.chance(0.5) ? 100 : 3000, 'g');
        auto sent = friend_.runs->spawn(
            [&] { friend_.box.send(good_.box.id(), served_ + 100, content, 60s); });
        expect_message(served_ + 100, content, friend_.box.id());
        move_until("a message", [&] { return sent.ready(); });
        EXPECT_TRUE(sent.wait().ok()) << name(sent.wait().code);
        do_in(good_, [&] { mine = {}; });
        expect_watched(friend_);
    }
    void expect_bounded() {
        const std::size_t contexts = victim_.directory->contexts();
        EXPECT_LE(contexts, limits.contexts);
        EXPECT_LE(victim_.directory->resources(), contexts * (1 + limits.resources));
        EXPECT_LE(victim_.directory->servers(), 20u);
    }

    const detail::test_lab& lab_ = the_lab();
    loop_network net_;
    seeded_random dice_;
    host victim_, neighbour_;
    user good_, friend_, far_;
    resource_watch watch_;
    std::set<resource_id> there_;
    resource_id brief_ = resource_id::none;
    std::int32_t served_ = 0;
};

std::uint64_t resident_bytes() {
    std::uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages >> pages;
    return pages * 4096;
}

TEST(directory_adversary, who_lies_harms_no_good_context_and_leaves_nothing_behind) {
    std::uint64_t resident = 0;
    for (const std::uint64_t seed : seeded_runs(12)) {
        ring_of_two all(seed);
        all.suffer();
        if (!testing::Test::HasFailure()) all.expect_recovered();
        if (resident == 0) resident = resident_bytes();
        ASSERT_LE(resident_bytes(), resident + (std::uint64_t{1} << 30));
    }
}

}  // namespace
}  // namespace amalgam::adversary
