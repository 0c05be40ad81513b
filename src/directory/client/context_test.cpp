#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/directory/context.hpp>
#include <amalgam/directory/directory_server.hpp>
#include <amalgam/fabric/loop.hpp>
#include <amalgam/tasks/channel.hpp>
#include <amalgam/tasks/ult.hpp>

#include "thrown.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

/// A directory and two contexts, all in this process, over shared memory.
class context_test : public testing::Test {
protected:
    context_options at(context_options options = {}) {
        options.directory = host.address();
        return options;
    }
    static std::string text(const_bytes bytes) {
        return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }

    engine host{"shm://", {.name = "directory"}};
    directory_server directory{host};
    context one{at()};
    context two{at()};
};

TEST_F(context_test, a_client_finds_a_server_and_is_answered) {
    const resource server = one.add({{"type", "server"}});
    const resource client = two.add({{"type", "client"}});
    const auto found = two.find({{"type", "server"}});
    ASSERT_TRUE(found);
    EXPECT_EQ(found->id, server.id());
    EXPECT_EQ(found->context, one.id());

    client.send(found->id, 7, "how are you?");
    const resource_message asked = server.receive();
    EXPECT_EQ(asked.from, client.id());
    EXPECT_EQ(asked.to, server.id());
    EXPECT_EQ(asked.tag, 7);
    EXPECT_EQ(asked.content.text(), "how are you?");
    server.send(asked.from, 8, "well");
    EXPECT_EQ(client.receive({.from = server.id(), .tag = 8}).content.text(), "well");
}

TEST_F(context_test, a_query_is_filled_as_far_as_the_resource_has_it) {
    const resource server = one.add({{"type", "server"}, {"rack", "7"}});
    attribute_list query{{"type", "server"}};
    query.ask("rack").ask("load");
    for (const auto& found : {two.find(query), two.find(server.id(), query)}) {
        ASSERT_TRUE(found);
        EXPECT_EQ(found->what.text("type"), "server");
        EXPECT_EQ(found->what.text("rack"), "7");
        EXPECT_FALSE(found->what.find("load"));
    }
    EXPECT_TRUE(two.find(server.id()));
    EXPECT_FALSE(two.find(server.id(), {{"type", "client"}})) << "it is no such thing";
    EXPECT_FALSE(two.find({{"type", "client"}}));
    EXPECT_FALSE(two.find(resource_id{1}));
    EXPECT_FALSE(two.find(resource_id::none));
    EXPECT_EQ(two.find({})->id, one.id()) << "the first of all";
    EXPECT_EQ(two.try_find({{"type", "server"}})->id, server.id());
    EXPECT_EQ(two.try_find({{"type", "client"}}).code(), errc::not_found);
}

TEST_F(context_test, what_ends_is_not_found_any_more) {
    {
        const resource brief = one.add({{"type", "brief"}});
        EXPECT_TRUE(two.find({{"type", "brief"}}));
    }
    EXPECT_FALSE(two.find({{"type", "brief"}}));
    resource longer = one.add({{"type", "longer"}});
    longer.release();
    EXPECT_TRUE(two.find({{"type", "longer"}}));
    EXPECT_EQ(directory.contexts(), 2u);
    {
        context three{at({.what = {{"rank", "3"}}})};
        const resource mine = three.add({{"type", "of three"}});
        EXPECT_EQ(two.find({{"rank", "3"}})->id, three.id());
        EXPECT_TRUE(two.find({{"type", "of three"}}));
    }
    EXPECT_FALSE(two.find({{"type", "of three"}}));
    EXPECT_FALSE(two.find({{"rank", "3"}}));
    EXPECT_EQ(directory.contexts(), 2u);
    EXPECT_EQ(directory.resources(), 3u);
}

TEST_F(context_test, a_search_finds_all_and_each_once) {
    std::vector<resource> mine;
    std::set<std::string> expected;
    for (int i = 0; i < 100; ++i) {
        mine.push_back((i % 2 == 0 ? one : two).add({{"type", "x"}, {"n", std::to_string(i)}}));
        expected.insert(std::to_string(i));
    }
    std::set<std::string> seen;
    attribute_list query{{"type", "x"}};
    query.ask("n");
    for (const found_resource& each : two.search(query))
        EXPECT_TRUE(seen.insert(std::string(each.what.text("n"))).second);
    EXPECT_EQ(seen, expected);

    auto stopped = two.search(query);
    EXPECT_TRUE(stopped.next());
    stopped.stop();
    EXPECT_FALSE(stopped.next());

    // While some resources go, those that stay are still found.
    auto thinning = two.search(query);
    std::size_t found = 0;
    for (; mine.size() > 10 && thinning.next(); ++found)
        mine.pop_back();
    while (thinning.next())
        ++found;
    EXPECT_GE(found, 10u);
    EXPECT_LE(found, 100u);
}

TEST_F(context_test, too_many_searches_are_refused_until_some_end) {
    std::vector<resource_search> many;
    const auto begin = [&] { many.push_back(one.search({{"type", "x"}})); };
    for (std::size_t i = 0; i < directory_limits{}.searches; ++i)
        begin();
    EXPECT_EQ(code_of(begin), errc::overloaded);
    many.clear();
    while (code_of(begin) != errc::ok)  // Stopping a search does not wait.
        this_task::yield();
}

TEST_F(context_test, a_watch_tells_what_is_there_what_appears_and_what_goes) {
    const resource before = one.add({{"type", "x"}, {"n", "0"}});
    channel<resource_change> told(100);
    attribute_list query{{"type", "x"}};
    query.ask("n");
    resource_watch watch =
        two.watch(query, [&](const resource_change& change) { told.push(change); });
    const auto expect = [&](resource_change::kind what, std::string_view n) {
        const resource_change change = *told.pop();
        EXPECT_EQ(change.what, what);
        EXPECT_EQ(change.which.what.text("n"), n);
        EXPECT_EQ(change.which.context, one.id());
    };
    using kind = resource_change::kind;
    expect(kind::appeared, "0");
    {
        const resource other = one.add({{"type", "y"}, {"n", "1"}});
        const resource brief = one.add({{"type", "x"}, {"n", "2"}});
        expect(kind::appeared, "2");
    }
    expect(kind::gone, "2");
    watch.end();
    const resource unseen = one.add({{"type", "x"}, {"n", "3"}});
    two.self().send(one.id(), 0, "any");  // Every pending notification has arrived by now.
    EXPECT_FALSE(told.try_pop());
}

TEST_F(context_test, a_watch_of_everything_tells_of_a_context_with_all_it_had) {
    channel<resource_change> told(100);
    const resource_watch watch =
        two.watch({}, [&](const resource_change& change) { told.push(change); });
    told.pop();
    told.pop();
    resource_id whole, mine;
    {
        context three{at()};
        resource x = three.add({{"type", "x"}});
        whole = three.id();
        mine = x.release();
    }
    std::vector<std::pair<resource_change::kind, resource_id>> seen;
    for (int i = 0; i < 4; ++i) {
        const resource_change change = *told.pop();
        seen.emplace_back(change.what, change.which.id);
    }
    using kind = resource_change::kind;
    EXPECT_EQ(seen, (std::vector<std::pair<kind, resource_id>>{{kind::appeared, whole},
                                                               {kind::appeared, mine},
                                                               {kind::gone, mine},
                                                               {kind::gone, whole}}));
}

TEST_F(context_test, messages_are_chosen_by_origin_and_tag_in_the_order_of_arrival) {
    const resource box = one.add({{"type", "box"}});
    const resource a = two.add({}), b = two.add({});
    for (const char* text : {"a1", "a2"})
        a.send(box.id(), 1, text);
    b.send(box.id(), 2, "b1");
    a.send(box.id(), 2, "a3");
    const auto taken = [&](const message_choice& which) {
        const auto got = box.try_receive(which);
        return got ? std::string(got->content.text()) : std::string("nothing");
    };
    EXPECT_EQ(taken({.tag = 3}), "nothing");
    EXPECT_EQ(taken({.from = b.id(), .tag = 1}), "nothing");
    EXPECT_EQ(taken({.tag = 2}), "b1");
    EXPECT_EQ(taken({.from = a.id(), .tag = 2}), "a3");
    EXPECT_EQ(taken({}), "a1");
    EXPECT_EQ(taken({.from = a.id()}), "a2");
    EXPECT_EQ(taken({}), "nothing");
    EXPECT_FALSE(box.receive_within(1ms));
}

TEST_F(context_test, a_message_of_any_size_arrives_as_it_was) {
    const resource box = one.add({}), mine = two.add({});
    for (const std::size_t bytes : {0, 1, 100, 5000, 32768, 32769, 1 << 20, 5 << 20}) {
        std::string content(bytes, ' ');
        for (std::size_t i = 0; i < bytes; ++i)
            content[i] = static_cast<char>(i * 7 + bytes);
        mine.send(box.id(), 1, content);
        EXPECT_EQ(box.receive().content.text(), content);
        mine.post(box.id(), 1, content);
        EXPECT_EQ(box.receive().content.text(), content);
        message_buffer lent = two.take_buffer(bytes);
        std::copy(content.begin(), content.end(), reinterpret_cast<char*>(lent.data()));
        mine.start_send(box.id(), 1, std::move(lent)).get();
        EXPECT_EQ(box.receive().content.text(), content);
        box.send(box.id(), 1, content);  // To itself.
        EXPECT_EQ(box.receive().content.text(), content);
    }
}

TEST_F(context_test, a_buffer_of_another_context_is_sent_by_all_means) {
    const resource box = one.add({}), mine = two.add({});
    for (const std::size_t bytes : {10, 100'000}) {
        const std::string content(bytes, 'x');
        const auto filled = [&](context& from) {
            message_buffer made = from.take_buffer(bytes);
            std::copy(content.begin(), content.end(), reinterpret_cast<char*>(made.data()));
            return made;
        };
        mine.post(box.id(), 1, filled(one));
        EXPECT_EQ(box.receive().content.text(), content);
        mine.start_send(box.id(), 1, filled(one)).get();
        EXPECT_EQ(box.receive().content.text(), content);
        auto three = std::make_unique<context>(at());
        message_buffer left = filled(*three);
        three.reset();
        mine.post(box.id(), 1, std::move(left));
        EXPECT_EQ(box.receive().content.text(), content);
    }
}

TEST_F(context_test, a_message_to_what_is_gone_or_never_was_says_so) {
    const resource mine = two.add({});
    resource box = one.add({});
    mine.send(box.id(), 1, "it is known now");
    const resource_id gone = box.id();
    box = {};
    for (const resource_id where : {gone, resource_id{5}, resource_id::none})
        EXPECT_EQ(code_of([&] { mine.send(where, 1, "?"); }), errc::not_found);
    EXPECT_EQ(code_of([&] { mine.send(gone, 1, std::string(100000, ' ')); }), errc::not_found);
}

TEST_F(context_test, a_posted_message_that_cannot_be_kept_is_told) {
    channel<undelivered_message> told(10);
    context three{at({.on_undelivered = [&](const undelivered_message& what) {
        told.try_push(undelivered_message(what));
    }})};
    const resource mine = three.add({});
    resource box = one.add({});
    mine.post(box.id(), 1, "it is known now");
    box.receive();
    const resource_id gone = box.id();
    box = {};
    mine.post(gone, 2, "?");
    const undelivered_message what = *told.pop();
    EXPECT_EQ(what.from, mine.id());
    EXPECT_EQ(what.to, gone);
    EXPECT_EQ(what.tag, 2);
    EXPECT_EQ(what.why, errc::not_found);
}

TEST_F(context_test, where_there_is_no_room_senders_wait_and_posts_come_back) {
    channel<undelivered_message> told(10);
    context full{at({.store_bytes = 10000})};
    context three{at({.on_undelivered = [&](const undelivered_message& what) {
        told.try_push(undelivered_message(what));
    }})};
    const resource box = full.add({});
    const resource mine = three.add({});
    mine.send(box.id(), 1, std::string(9000, 'a'));
    mine.post(box.id(), 2, std::string(1000, 'b'));
    EXPECT_EQ(told.pop()->why, errc::overloaded);
    EXPECT_EQ(code_of([&] { mine.send(box.id(), 3, std::string(1000, 'c'), 1ms); }),
              errc::timed_out);
    auto later = three.where().spawn([&] { mine.send(box.id(), 4, std::string(1000, 'd')); });
    mine.post(box.id(), 5, std::string(40000, 'e'));  // Waits at the sender.
    EXPECT_FALSE(later.ready());
    EXPECT_EQ(box.receive().content.text()[0], 'a');
    // 3 may still arrive, too: a send that timed out may have been in flight.
    std::set<int> missing{4, 5};
    while (!missing.empty()) {
        const int tag = box.receive().tag;
        EXPECT_TRUE(missing.erase(tag) == 1 || tag == 3) << tag;
    }
    later.get();
}

TEST_F(context_test, messages_arrive_in_the_order_in_which_they_were_begun) {
    context small{at({.store_bytes = 20000})};
    const resource box = small.add({}), mine = two.add({}), other = two.add({});
    constexpr int count = 600;
    std::vector<future<void>> begun;
    for (int i = 0; i < count; ++i) {
        const std::size_t bytes = i % 100 == 7 ? 40000 : i % 10 == 0 ? 5000 : 500;
        begun.push_back(mine.start_send(box.id(), i, two.take_buffer(bytes)));
        if (i % 10 == 3) begun.push_back(other.start_send(box.id(), i, two.take_buffer(100)));
    }
    mine.post(box.id(), count, "posted behind them");
    EXPECT_EQ(code_of([&] { mine.send(box.id(), -1, "too late", 0ns); }), errc::timed_out);
    auto last = two.where().spawn([&] { mine.send(box.id(), count + 1, "the last"); });
    int next = 0, next_of_other = 3;
    while (next <= count + 1 || next_of_other < count) {
        const resource_message got = box.receive();
        int& expected = got.from == mine.id() ? next : next_of_other;
        ASSERT_EQ(got.tag, expected);
        expected += got.from == mine.id() ? 1 : 10;
    }
    for (auto& each : begun)
        each.get();
    last.get();
    EXPECT_FALSE(box.try_receive());
}

TEST_F(context_test, messages_around_what_a_transport_sends_at_once_keep_their_order) {
    const resource box = one.add({}), mine = two.add({});
    for (const std::size_t most : {std::size_t{16} << 10, std::size_t{32} << 10}) {
        int tag = 0;
        std::vector<future<void>> begun;
        for (int round = 0; round < 10; ++round) {
            for (const std::size_t bytes : {std::size_t{8}, most - 100, most - 40, std::size_t{0},
                                            most, most + 40, std::size_t{9}})
                begun.push_back(mine.start_send(box.id(), tag++, two.take_buffer(bytes)));
        }
        for (int expected = 0; expected < tag; ++expected)
            ASSERT_EQ(box.receive().tag, expected);
        for (auto& each : begun)
            each.get();
    }
}

TEST_F(context_test, messages_that_were_begun_end_when_their_receiver_or_sender_does) {
    auto small = std::make_unique<context>(at({.store_bytes = 1000}));
    auto three = std::make_unique<context>(at());
    resource box = small->add({}), other = small->add({});
    const resource mine = three->add({});
    std::vector<future<void>> to_box, to_other;
    for (int i = 0; i < 60; ++i) {
        to_box.push_back(mine.start_send(box.id(), i, three->take_buffer(900)));
        to_other.push_back(mine.start_send(other.id(), i, three->take_buffer(900)));
    }
    box = {};
    const auto ended = [](std::vector<future<void>>& all, errc how) {
        std::size_t count = 0;
        for (auto& each : all)
            count += each.wait().code == how;
        return count;
    };
    EXPECT_GE(ended(to_box, errc::not_found), 59u) << "one was stored, perhaps";
    for (int i = 0; i < 30; ++i)
        EXPECT_EQ(other.receive().tag, i);
    three.reset();
    EXPECT_GE(ended(to_other, errc::ok), 30u);
    EXPECT_LE(ended(to_other, errc::ok), 32u);
    EXPECT_EQ(ended(to_other, errc::ok) + ended(to_other, errc::closed), 60u);
}

TEST_F(context_test, bad_requests_are_refused_with_what_is_wrong) {
    attribute_list open{{"type", "x"}};
    open.ask("n");
    EXPECT_EQ(code_of([&] { (void)one.add(open); }), errc::invalid);
    EXPECT_EQ(code_of([&] {
                  context another{one.where(), at()};
              }),
              errc::invalid)
        << "the engine has one";
    EXPECT_EQ(code_of([&] {
                  context lost{"shm://", {.directory = "shm://nobody-is-here"}};
              }),
              errc::unreachable);
    EXPECT_EQ(code_of([&] { context lost{"shm://", {.directory = "what?"}}; }), errc::invalid);
    const resource mine = one.add({{"type", "x"}});
    EXPECT_EQ(directory.resources(), 3u);
}

TEST(context, is_refused_where_a_secret_is_still_asked_for) {
    engine on{"shm://"};
    ::setenv("AMALGAM_SECRET_FILE", "/run/secret", 1);
    const error of_context = error_of([] { context here{"shm://", {.directory = "here"}}; });
    const error of_directory = error_of([&] { const directory_server server{on}; });
    ::unsetenv("AMALGAM_SECRET_FILE");
    for (const error& each : {of_context, of_directory}) {
        EXPECT_EQ(each.code(), errc::invalid);
        EXPECT_NE(std::string(each.what()).find("expected it unset and addresses of tcp+tls://"),
                  std::string::npos)
            << each.what();
    }
    const directory_server server{on};
}

template <typename Work>
void expect_of_each_use(const resource& mine, errc expected, Work code_of) {
    const auto expect = [&](auto use) { EXPECT_EQ(code_of(use), expected); };
    expect([&] { mine.send(resource_id{1}, 1, "?"); });
    expect([&] { mine.send(resource_id{1}, 1, std::string(100000, '?')); });
    expect([&] { mine.start_send(resource_id{1}, 1, message_buffer()).get(); });
    expect([&] { mine.post(resource_id{1}, 1, "?"); });
    expect([&] { mine.post(resource_id{1}, 1, message_buffer()); });
    expect([&] { (void)mine.receive(); });
    expect([&] { (void)mine.receive_within(1ms); });
    expect([&] { (void)mine.try_receive(); });
}

TEST_F(context_test, a_resource_that_outlives_its_context_or_is_none_says_so) {
    auto three = std::make_unique<context>(at());
    resource late = three->add({{"type", "late"}});
    auto search = three->search({{"type", "late"}});
    three.reset();
    const auto code = [](auto use) { return code_of(use); };
    expect_of_each_use(late, errc::closed, code);
    EXPECT_EQ(code_of([&] { (void)search.next(); }), errc::closed);
    const resource moved = std::move(late);
    expect_of_each_use(late, errc::invalid, code);
    expect_of_each_use(resource(), errc::invalid, code);
    resource released = one.add({});
    released.release();
    expect_of_each_use(released, errc::invalid, code);
}

TEST(context, is_one_of_each_engine) {
    engine on("shm://");
    const context_options options{.directory = "here"};
    context first(on, options);
    std::string why;
    try {
        const context second(on, {.directory = on.address()});
    } catch (const error& wrong) {
        why = wrong.what();
    }
    EXPECT_TRUE(why.starts_with("this engine already has a context, expected at most one")) << why;
    // It keeps working, and others may join.
    context other(context_options{.directory = on.address()});
    const resource box = first.add({{"type", "box"}});
    EXPECT_TRUE(other.find(box.id()));
    other.self().send(box.id(), 1, "hello");
    EXPECT_EQ(box.receive().content.text(), "hello");
}

TEST(context, can_be_a_directory_of_its_own) {
    context alone{"shm://", {.directory = "here"}};
    const resource a = alone.add({{"type", "a"}}), b = alone.add({{"type", "b"}});
    a.send(alone.find({{"type", "b"}})->id, 1, "hello");
    EXPECT_EQ(b.receive().content.text(), "hello");
}

TEST(context, two_that_are_here_have_two_directories) {
    context first{"shm://", {.directory = "here"}}, second{"shm://", {.directory = "here"}};
    const resource box = first.add({{"type", "box"}});
    EXPECT_FALSE(second.find({{"type", "box"}}));
    context third{"shm://", {.directory = first.where().address()}};
    EXPECT_EQ(third.find({{"type", "box"}})->id, box.id());
}

/// The same on a virtual-time network.
class loop_contexts : public testing::Test {
protected:
    template <typename Work>
    auto in(engine& where, Work work) {
        auto done = where.spawn(std::move(work));
        for (int i = 0; i < 1000 && !done.ready(); ++i)
            net.run_for(std::chrono::milliseconds(20));
        EXPECT_TRUE(done.ready());
        return done.get();
    }
    std::unique_ptr<context> open(engine& where) {
        return in(where, [&] {
            return std::make_unique<context>(where, context_options{.directory = host.address()});
        });
    }

    loop_network net;
    engine host{net.port("host")};
    directory_server directory{host};
    engine first{net.port("first")};
    engine second{net.port("second")};
};

TEST_F(loop_contexts, a_killed_process_takes_its_resources_with_it) {
    const auto one = open(first), two = open(second);
    in(first, [&] { one->add({{"type", "x"}}).release(); });
    const auto found = in(second, [&] { return two->find({{"type", "x"}}); });
    ASSERT_TRUE(found);
    in(second, [&] { two->self().send(found->id, 1, "it is known now"); });
    net.kill("first");
    net.run_for(std::chrono::seconds(20));
    EXPECT_EQ(directory.contexts(), 1u);
    EXPECT_FALSE(in(second, [&] { return two->find({{"type", "x"}}); }));
    EXPECT_EQ(in(second,
                 [&] {
                     try {
                         two->self().send(found->id, 1, "?");
                     } catch (const error& why) {
                         return why.code().code;
                     }
                     return errc::ok;
                 }),
              errc::not_found);
}

// Code that is in no ULT cannot wait in virtual time; neither can a tasklet or call_then().
TEST_F(loop_contexts, what_ends_where_nobody_can_wait_is_gone_for_others) {
    auto one = open(first), two = open(second);
    resource box = in(first, [&] { return one->add({{"type", "x"}}); });
    box = {};
    net.run_for(std::chrono::seconds(1));
    EXPECT_EQ(directory.resources(), 2u);
    one.reset();
    net.run_for(std::chrono::seconds(1));
    EXPECT_EQ(directory.contexts(), 1u) << "its engine goes on";
    in(second, [&] { two.reset(); });
}

TEST_F(loop_contexts, a_lost_directory_is_told_and_asked_no_more) {
    auto one = open(first);
    resource_change last{resource_change::kind::gone, {}};
    resource_watch watch = in(first, [&] {
        return one->watch({{"type", "x"}}, [&](const resource_change& change) { last = change; });
    });
    net.kill("host");
    net.run_for(std::chrono::seconds(20));
    EXPECT_EQ(last.what, resource_change::kind::ended);
    in(first, [&] {
        EXPECT_THROW((void)one->find({{"type", "x"}}), error);
        watch.end();
        one.reset();
    });
}

}  // namespace
}  // namespace amalgam
