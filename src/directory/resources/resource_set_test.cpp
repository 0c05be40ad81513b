// Changing attributes, and ownership of resources.
#include <string>
#include <utility>
#include <vector>

#include "directory/client/context_core.hpp"
#include "directory/membership/hosts.hpp"
#include "directory/protocol/procedures.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;
using kind = resource_change::kind;

TEST(resource_set, changes_what_is_found_and_what_watches_are_told_on_all_hosts) {
    hosts all(2);
    all.net.run_for(3s);
    std::vector<std::pair<kind, std::string>> told[2];
    std::vector<resource_watch> watches;
    for (const std::size_t at : {0, 1}) {
        watches.push_back(all.in(at, [&](context& here) {
            attribute_list query{{"type", "box"}};
            query.ask("load");
            return here.watch(query, [&told, at](const resource_change& change) {
                told[at].emplace_back(change.what, change.which.what.text("load"));
            });
        }));
    }
    resource box = all.in(1, [](context& here) {
        return here.add({{"type", "box"}, {"load", "1"}, {"rack", "7"}});
    });
    const auto set = [&](const attribute_list& changes) {
        all.in(1, [&](context&) { box.set(changes); });
        all.net.run_for(1s);
    };
    all.net.run_for(1s);
    set({{"load", "2"}});
    for (const std::size_t at : {0, 1}) {
        attribute_list query{{"load", "2"}};
        query.ask("rack");
        const auto found = all.find(at, query);
        ASSERT_TRUE(found) << at;
        EXPECT_EQ(found->id, box.id());
        EXPECT_EQ(found->what.text("rack"), "7");
        EXPECT_EQ(found->what.number<int>("load"), 2);
        EXPECT_FALSE(all.find(at, {{"load", "1"}}));
    }
    set({{"type", "lid"}});
    EXPECT_FALSE(all.find(0, {{"type", "box"}}));
    set({{"type", "box"}, {"load", "3"}, {"new", "x"}});
    EXPECT_TRUE(all.find(0, {{"new", "x"}}));
    const std::vector<std::pair<kind, std::string>> expected{
        {kind::appeared, "1"}, {kind::changed, "2"}, {kind::gone, "2"}, {kind::appeared, "3"}};
    // When it no longer matches, the report has its values at that point.
    for (const std::size_t at : {0, 1})
        EXPECT_EQ(told[at], expected) << at;
    all.in(1, [&](context& here) {
        attribute_list open;
        open.ask("load");
        try {
            box.set(open);
            ADD_FAILURE() << "it was taken";
        } catch (const error& why) {
            EXPECT_EQ(why.code(), errc::invalid);
            EXPECT_STREQ(why.what(),
                         "attribute \"load\" of a change has no value; expected one for each "
                         "attribute; example: add(\"load\", \"7\")");
        }
        here.self().set({{"rank", "1"}});
        box = {};
    });
    EXPECT_TRUE(all.find(0, {{"rank", "1"}}));
    EXPECT_FALSE(all.find(0, {{"new", "x"}}));
    all.in(0, [&](context&) { watches.clear(); });
}

TEST(resource_set, a_search_under_way_finds_what_changes_once) {
    hosts all(1);
    all.net.run_for(1s);
    all.in(0, [](context& here) {
        std::vector<resource> mine;
        for (int i = 0; i < 20; ++i)
            mine.push_back(here.add({{"type", "x"}, {"n", "0"}}));
        std::size_t seen = 0;
        for (const found_resource& each : here.search({{"type", "x"}})) {
            EXPECT_EQ(each.id, mine[seen].id());
            mine[seen].set({{"n", "1"}});
            mine[19 - seen].set({{"m", std::to_string(seen)}});
            ++seen;
        }
        EXPECT_EQ(seen, 20u);
        mine.clear();
        EXPECT_FALSE(here.find({{"type", "x"}}));
        EXPECT_FALSE(here.find({{"n", "1"}}));
    });
}

TEST(resource_set, belongs_to_who_has_it) {
    hosts all(1);
    all.net.run_for(1s);
    const resource_id mine = all.add_resource(0, {{"type", "x"}});
    engine other(all.net.port("other"));
    namespace d = detail::at_directory;
    const auto code = [&](resource_id context, resource_id which) {
        auto done = other.spawn([&, context, which] {
            const peer there = other.lookup("loop://host0");
            const resource_id own =
                other.procedure<d::open>(d::open_name).on(there)(attribute_list()).take();
            return other.procedure<d::set>(d::set_name)
                .on(there)(context == resource_id::none ? own : context, which,
                           attribute_list{{"type", "y"}})
                .code;
        });
        all.net.run_for(2s);
        return done.get();
    };
    EXPECT_EQ(code(resource_id::none, mine), errc::denied);
    EXPECT_EQ(code(resource_id::none, resource_id{5}), errc::not_found);
    EXPECT_EQ(code(all.in(0, [](context& here) { return here.id(); }), mine), errc::denied);
    EXPECT_TRUE(all.find(0, {{"type", "x"}}));
}

TEST(context_lookup, gives_the_peer_that_has_a_resource) {
    hosts all(2);
    all.net.run_for(3s);
    const resource_id box = all.add_resource(1, {{"type", "box"}});
    all.in(1, [](context& here) { here.where().define("double", [](int x) { return 2 * x; }); });
    all.in(0, [&](context& here) {
        const auto found = here.find({{"type", "box"}});
        const auto twice = here.where().procedure<int(int)>("double");
        EXPECT_EQ(twice.on(here.lookup(*found))(21), 42);
        EXPECT_EQ(twice.on(here.lookup(box))(4), 8);
        EXPECT_TRUE(here.lookup(here.id()).is_self());
        try {
            (void)here.lookup(resource_id{5});
            ADD_FAILURE() << "there is none";
        } catch (const error& why) {
            EXPECT_EQ(why.code(), errc::not_found);
        }
    });
}

TEST(messages, nobody_sends_as_a_resource_of_the_receiver) {
    hosts all(1);
    all.net.run_for(1s);
    const resource_id box = all.add_resource(0, {}), other = all.add_resource(0, {});
    engine stranger(all.net.port("stranger"));
    namespace c = detail::at_context;
    const auto says_so = [&](resource_id from, resource_id to) {
        auto done = stranger.spawn([&, from, to] {
            return stranger.procedure<c::message>(c::message_name)
                .on(stranger.lookup("loop://userhost0"))(from, to, 1, const_bytes());
        });
        all.net.run_for(1s);
        return done.get();
    };
    EXPECT_EQ(says_so(other, box), errc::denied);
    // Also after a message from it.
    all.in(0, [&](context& here) { here.core().post(other, box, 2, const_bytes()); });
    EXPECT_EQ(says_so(other, box), errc::denied);
    EXPECT_EQ(says_so(resource_id{12345}, box), errc::ok) << "of that nothing is known";
    all.in(0, [&](context& here) {
        EXPECT_EQ(here.core().receive(box, {}, 0ns)->tag, 2);
        EXPECT_EQ(here.core().receive(box, {}, 0ns)->tag, 1);
    });
}

TEST(messages, a_resource_that_is_elsewhere_by_now_is_looked_for_again) {
    hosts all(1);
    all.net.run_for(1s);
    engine other_user(all.net.port("other"));
    std::unique_ptr<context> other;
    const auto in_other = [&](auto work) {
        auto done = other_user.spawn(std::move(work));
        all.net.run_for(2s);
        EXPECT_TRUE(done.ready());
        return done.get();
    };
    in_other([&] {
        other = std::make_unique<context>(other_user, context_options{.directory = "loop://host0"});
    });
    resource box = all.in(0, [](context& here) { return here.add({}); });
    const resource_id id = box.id();
    engine third_user(all.net.port("third"));
    std::unique_ptr<context> third;
    auto opened = third_user.spawn([&] {
        third = std::make_unique<context>(third_user, context_options{.directory = "loop://host0"});
        third->self().send(id, 1, "it is known now");
    });
    all.net.run_for(2s);
    opened.get();
    all.in(0, [&](context&) { box = {}; });
    // The other context takes the id, as after loss of its directory.
    in_other([&] {
        namespace d = detail::at_directory;
        EXPECT_EQ(other_user.procedure<d::reopen>(d::reopen_name)
                      .on(other_user.lookup("loop://host0"))(other->id(), id, attribute_list())
                      .code,
                  errc::ok);
        other->core().messages().open(id);
    });
    auto sent = third_user.spawn([&] {
        third->self().send(id, 2, "sent");
        third->self().start_send(id, 3, third->take_buffer(5)).get();
    });
    all.net.run_for(2s);
    ASSERT_TRUE(sent.ready());
    sent.get();
    in_other([&] {
        for (const int tag : {2, 3})
            EXPECT_EQ(other->core().receive(id, {}, 0ns)->tag, tag);
        other.reset();
    });
    auto ended = third_user.spawn([&] { third.reset(); });
    all.net.run_for(2s);
    ended.get();
}

}  // namespace
}  // namespace amalgam
