// Messages between resources, what outlives a context, and limits of a directory.
#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>
#include <amalgam/directory/context.hpp>
#include <amalgam/directory/directory_server.hpp>
#include <amalgam/fabric/loop.hpp>
#include <amalgam/tasks/channel.hpp>

#include "thrown.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

/// A directory and two contexts, all in this process, over shared memory.
class resource_test : public testing::Test {
protected:
    context_options at(context_options options = {}) {
        options.directory = host.address();
        return options;
    }

    engine host{"shm://", {.name = "directory"}};
    std::optional<directory_server> directory{std::in_place, host};
    context one{at()};
    context two{at()};
};

TEST_F(resource_test, each_message_goes_to_one_of_those_who_receive) {
    constexpr int count = 2000, receivers = 3;
    const resource box = one.add({}), mine = two.add({});
    std::vector<std::vector<int>> got(receivers);
    {
        std::vector<std::jthread> all;
        for (std::vector<int>& its : got)
            all.emplace_back([&] {
                for (int tag = 0; (tag = box.receive().tag) != -1;)
                    its.push_back(tag);
            });
        for (int i = 0; i < count; ++i)
            mine.post(box.id(), i, "x");
        for (int i = 0; i < receivers; ++i)
            mine.send(box.id(), -1, "no more");
    }
    std::set<int> all;
    for (const std::vector<int>& its : got)
        for (const int tag : its)
            EXPECT_TRUE(all.insert(tag).second) << tag << " came twice";
    EXPECT_EQ(all.size(), static_cast<std::size_t>(count));
}

TEST_F(resource_test, messages_arrive_in_order_however_they_are_sent_but_for_long_posts) {
    const resource box = one.add({}), mine = two.add({});
    seeded_random random(3);
    std::vector<future<void>> begun;
    constexpr int count = 2000;
    for (int i = 0; i < count; ++i) {
        const std::size_t bytes = random.chance(0.1) ? 40000 : random.below(2000);
        switch (random.below(3)) {
            case 0:
                mine.send(box.id(), i, std::string(bytes, 's'));
                break;
            case 1:
                begun.push_back(mine.start_send(box.id(), i, two.take_buffer(bytes)));
                break;
            default:
                mine.post(box.id(), i, std::string(bytes % 2000, 'p'));
        }
    }
    for (int i = 0; i < count; ++i)
        ASSERT_EQ(box.receive().tag, i);
    for (future<void>& each : begun)
        each.get();
}

TEST_F(resource_test, posts_that_wait_behind_others_are_bounded) {
    context full{at({.store_bytes = 2000})};
    context sender{at({.store_bytes = 20000})};
    const resource box = full.add({}), mine = sender.add({});
    std::vector<future<void>> begun;
    for (int i = 0; i < 10; ++i)
        begun.push_back(mine.start_send(box.id(), i, sender.take_buffer(1000)));
    int posted = 0;
    while (code_of([&] { mine.post(box.id(), 10 + posted, std::string(1000, 'p')); }) == errc::ok)
        ASSERT_LE(++posted, 20) << "more than were to be kept";
    EXPECT_EQ(code_of([&] { mine.post(box.id(), 0, std::string(1000, 'p')); }), errc::overloaded);
    EXPECT_GE(posted, 10);
    for (int i = 0; i < 10; ++i)
        EXPECT_EQ(box.receive().tag, i);
    for (future<void>& each : begun)
        each.get();
}

TEST_F(resource_test, buffers_messages_and_watches_outlive_their_context) {
    auto brief = std::make_unique<context>(at());
    const resource box = brief->add({{"type", "box"}});
    std::vector<resource_message> got;
    for (const std::size_t bytes : {100u, 100000u}) {
        two.self().send(box.id(), 1, std::string(bytes, 'm'));
        got.push_back(box.receive());
    }
    message_buffer small = brief->take_buffer(10), large = brief->take_buffer(100000);
    EXPECT_FALSE(small.is_registered());
    EXPECT_TRUE(large.is_registered()) << "it has more than the eager bytes";
    std::atomic<int> told{0};
    resource_watch watch = brief->watch({{"type", "x"}}, [&](const resource_change&) { ++told; });
    brief.reset();
    EXPECT_EQ(got[0].content.text(), std::string(100, 'm'));
    EXPECT_EQ(got[1].content.text(), std::string(100000, 'm'));
    for (message_buffer* each : {&small, &large})
        std::fill(each->bytes().begin(), each->bytes().end(), std::byte{1});
    const resource unseen = one.add({{"type", "x"}});
    two.self().send(one.id(), 0, "what had to be told has been by now");
    watch.end();
    watch.end();
    EXPECT_EQ(told, 0);
}

TEST_F(resource_test, contexts_may_be_used_by_any_threads_at_once) {
    std::vector<std::jthread> all;
    for (int which = 0; which < 4; ++which)
        all.emplace_back([&, which] {
            context& here = which % 2 == 0 ? one : two;
            const std::string name = std::to_string(which);
            for (int i = 0; i < 50; ++i) {
                const resource mine = here.add({{"thread", name}});
                const auto found = two.find({{"thread", name}});
                ASSERT_TRUE(found);
                EXPECT_EQ(found->id, mine.id());
                one.self().send(found->id, i, name);
                const auto got = mine.receive_within(1min, {.from = one.id()});
                ASSERT_TRUE(got);
                EXPECT_EQ(got->content.text(), name);
                mine.set({{"n", std::to_string(i)}});
                std::size_t seen = 0;
                for (const found_resource& each : here.search({{"n", std::to_string(i)}}))
                    seen += each.id == mine.id();
                EXPECT_EQ(seen, 1u);
            }
        });
    all.clear();
    EXPECT_EQ(directory->resources(), 2u);
}

TEST_F(resource_test, a_second_directory_on_an_engine_is_refused) {
    EXPECT_EQ(code_of([&] { const directory_server second{host}; }), errc::invalid);
    EXPECT_TRUE(two.find(one.id()));
}

TEST_F(resource_test, a_directory_is_lost_with_its_engine_and_serves_nobody_before) {
    context brief{at({.reopen_within = 0ms})};
    const auto find = [&] { return code_of([&] { (void)brief.find({{"type", "x"}}); }); };
    directory.reset();
    // Its farewell may overtake the answer that nothing serves there any more.
    const errc ended = find();
    EXPECT_TRUE(ended == errc::not_found || ended == errc::disconnected) << name(ended);
    host.stop();
    while (find() != errc::disconnected)  // The loss takes a moment to be noticed.
        std::this_thread::yield();
}

/// A directory, and two contexts at it, in virtual time.
class limited_directory : public testing::Test {
protected:
    template <typename Work>
    auto in(engine& where, Work work) {
        auto done = where.spawn(std::move(work));
        for (int i = 0; i < 1000 && !done.ready(); ++i)
            net.run_for(20ms);
        EXPECT_TRUE(done.ready());
        return done.get();
    }
    explicit limited_directory(directory_options options = {.limits = {.contexts = 2,
                                                                       .resources = 2,
                                                                       .bytes = 3000,
                                                                       .watches = 1,
                                                                       .untold = 1}})
        : directory(host, std::move(options)) {
        one = open(first);
        two = open(second);
    }
    ~limited_directory() override {
        in(first, [&] { one.reset(); });
        in(second, [&] { two.reset(); });
    }
    std::unique_ptr<context> open(engine& where) {
        return in(where, [&] {
            return std::make_unique<context>(where, context_options{.directory = host.address()});
        });
    }

    loop_network net;
    const port_options never_silent{.silence_limit = 24h};
    engine host{net.port("host", never_silent)};
    directory_server directory;
    engine first{net.port("first", never_silent)}, second{net.port("second", never_silent)};
    std::unique_ptr<context> one, two;
};

TEST_F(limited_directory, refuses_what_is_past_a_limit_until_there_is_room_again) {
    engine third(net.port("third"));
    EXPECT_EQ(
        in(third,
           [&] {
               return code_of([&] { const context more(third, {.directory = host.address()}); });
           }),
        errc::overloaded);
    in(first, [&] {
        const auto add = [&](std::size_t bytes) {
            return code_of([&] { one->add({{"x", std::string(bytes, 'x')}}).release(); });
        };
        const auto watch = [&] { return one->watch({{"type", "x"}}, [](const auto&) {}); };
        EXPECT_EQ(add(10000), errc::overloaded) << "of bytes";
        {
            const resource a = one->add({}), b = one->add({});
            EXPECT_EQ(add(1), errc::overloaded) << "of resources";
        }
        EXPECT_EQ(add(1), errc::ok);
        {
            const resource_watch only = watch();
            EXPECT_EQ(code_of([&] { (void)watch(); }), errc::overloaded);
        }
        EXPECT_EQ(code_of([&] { (void)watch(); }), errc::ok);
    });
    in(second, [&] { EXPECT_NO_THROW(two->add({{"x", std::string(2000, 'x')}}).release()); });
}

TEST_F(limited_directory, a_change_of_attributes_that_is_refused_changes_nothing) {
    in(first, [&] {
        const resource box = one->add({{"type", "box"}, {"n", "1"}});
        attribute_list open{{"n", "2"}};
        open.ask("type");
        const attribute_list large{{"n", "2"}, {"large", std::string(5000, 'x')}};
        EXPECT_EQ(code_of([&] { box.set(large); }), errc::overloaded);
        EXPECT_EQ(code_of([&] { box.set(open); }), errc::invalid);
        attribute_list query{{"type", "box"}};
        query.ask("n").ask("large");
        const auto found = one->find(query);
        ASSERT_TRUE(found);
        EXPECT_EQ(found->what.text("n"), "1");
        EXPECT_FALSE(found->what.find("large"));
    });
}

TEST_F(limited_directory, a_watch_that_is_not_told_as_fast_as_changes_come_ends) {
    using kind = resource_change::kind;
    std::vector<kind> told;
    const auto watch_all = [&] {
        return two->watch({{"type", "x"}},
                          [&](const resource_change& change) { told.push_back(change.what); });
    };
    resource_watch watch = in(second, watch_all);
    const auto add = [&] {
        in(first, [&] { one->add({{"type", "x"}}).release(); });
        net.run_for(1s);
    };
    add();
    add();
    in(first, [&] { one.reset(); });  // Both disappear at once.
    net.run_for(1s);
    EXPECT_EQ(told, (std::vector<kind>{kind::appeared, kind::appeared, kind::ended}));
    one = open(first);
    add();
    EXPECT_EQ(told.size(), 3u) << "nothing more is told";
    watch = in(second, watch_all);
    net.run_for(1s);
    EXPECT_EQ(told.size(), 4u) << "but to a new one";
    in(second, [&] { watch.end(); });
}

/// A directory that does not ping its contexts.
class patient_directory : public limited_directory {
protected:
    patient_directory() : limited_directory({.silence = 0ms}) {}
};
TEST_F(patient_directory, takes_no_context_for_gone_while_its_connection_stands) {
    net.cut("second");
    net.run_for(10min);
    EXPECT_EQ(directory.contexts(), 2u);
    net.heal("second");
    EXPECT_TRUE(in(second, [&] { return two->find(one->id()); }));
}

}  // namespace
}  // namespace amalgam
