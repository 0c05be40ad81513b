#include <atomic>
#include <latch>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/engine_config.hpp>
#include <amalgam/tasks/event.hpp>

#include "rpc/loop_pair.hpp"
#include "rpc/without_waiting.hpp"

namespace amalgam {
namespace {

std::string here() {
    return std::string(execution_stream::current()->name());
}

engine_options two_streams() {
    return {.streams = {{}, {.name = "w", .pools = {"work"}}},
            .pools = {{.name = "work"}},
            .handlers = "work"};
}

engine_config now(const engine& of) {
    return parse_engine_config(of.configuration()).value();
}

/// The streams that run `count` handlers which all run at once.
std::set<std::string> streams_of(engine& server, std::string_view pool, int count) {
    std::latch all(count);
    server.define("meet",
                  [&all] {
                      all.arrive_and_wait();  // blocks its stream
                      return here();
                  },
                  {.in_pool = pool});
    const auto meet = server.procedure<std::string()>("meet").on(server.lookup(server.address()));
    std::vector<future<std::string>> calls;
    for (int i = 0; i < count; ++i)
        calls.push_back(meet.start());
    std::set<std::string> names;
    for (auto& each : calls)
        names.insert(each.get());
    server.undefine("meet");
    return names;
}

TEST(added_stream, serves_a_pool_of_the_options_beside_the_others_and_in_their_place) {
    engine server{"shm://", two_streams()};
    EXPECT_EQ(server.add_stream({.name = "w2", .pools = {"work"}}), "w2");
    EXPECT_EQ(streams_of(server, "work", 2), (std::set<std::string>{"w", "w2"}));
    EXPECT_TRUE(server.remove_stream("w"));
    EXPECT_EQ(server.stream(1).state(), stream_state::stopped);
    EXPECT_EQ(streams_of(server, "work", 1), std::set<std::string>{"w2"});
    EXPECT_FALSE(server.remove_stream("w"));
    const error last = error_of([&] { server.remove_stream("w2"); });
    EXPECT_EQ(last.code(), errc::in_use);
    EXPECT_STREQ(last.what(),
                 "the stream \"w2\" cannot be removed: nobody else serves the pool "
                 "\"work\"; add another stream to it first");
}

TEST(added_stream, serves_an_added_pool_which_stays_until_it_is_removed) {
    engine server{"shm://"};
    server.add_pool({.name = "io"});
    EXPECT_EQ(server.add_stream({.pools = {"io"}}), "amalgam-io");
    EXPECT_EQ(server.add_stream({.name = "third", .pools = {"io"}}), "third");
    EXPECT_EQ(streams_of(server, "io", 3), (std::set<std::string>{"amalgam-io", "third"}));
    const error why = error_of([&] { server.remove_pool("io"); });
    EXPECT_EQ(why.code(), errc::in_use);
    EXPECT_NE(std::string(why.what()).find("the stream \"amalgam-io\" was added to it"),
              std::string::npos);
    EXPECT_TRUE(server.remove_stream("amalgam-io"));  // The added one.
    EXPECT_TRUE(server.remove_stream("amalgam-io"));  // That of add_pool().
    EXPECT_EQ(streams_of(server, "io", 1), std::set<std::string>{"third"});
    EXPECT_EQ(error_of([&] { server.remove_stream("third"); }).code(), errc::in_use);
    server.add_stream({.pools = {"io"}});
    EXPECT_TRUE(server.remove_stream("third"));
    EXPECT_EQ(streams_of(server, "io", 1), std::set<std::string>{"amalgam-io"});
}

TEST(added_stream, takes_over_what_began_on_one_that_is_removed) {
    engine server{"shm://", two_streams()};
    event begun, go_on;
    server.define("wait", [&] {
        const std::string first = here();
        begun.set();
        go_on.wait();
        return first + ' ' + here();
    });
    auto call = server.procedure<std::string()>("wait").on(server.lookup(server.address())).start();
    begun.wait();
    server.add_stream({.name = "w2", .pools = {"work"}});
    EXPECT_TRUE(server.remove_stream("w"));
    go_on.set();
    EXPECT_EQ(call.get(), "w w2");
}

TEST(added_stream, cannot_be_removed_by_what_runs_on_it_nor_can_the_one_with_the_ports) {
    engine server{"shm://", two_streams()};
    server.define("leave", [&] {
        const error why = error_of([&] { server.remove_stream(here()); });
        EXPECT_EQ(why.code(), errc::invalid);
        return std::string(why.what());
    });
    const auto leave = server.procedure<std::string()>("leave").on(server.lookup(server.address()));
    server.add_stream({.name = "w2", .pools = {"work"}});
    EXPECT_NE(leave().find("it runs the caller; remove it from elsewhere"), std::string::npos);
    const error ports = error_of([&] { server.remove_stream("amalgam"); });
    EXPECT_EQ(ports.code(), errc::invalid);
    EXPECT_NE(std::string(ports.what()).find("it makes progress on the engine's ports"),
              std::string::npos);
    server.define("remove", [&] { return server.remove_stream("w2"); }, {.in_pool = "amalgam"});
    const auto remove = server.procedure<bool()>("remove").on(server.lookup(server.address()));
    EXPECT_TRUE(remove());
    EXPECT_FALSE(remove());
}

class added_streams_without_waiting : public testing::TestWithParam<cannot_wait> {};
INSTANTIATE_TEST_SUITE_P(added_stream, added_streams_without_waiting, all_that_cannot_wait,
                         name_of);

TEST_P(added_streams_without_waiting, are_not_removed) {
    other_engines others;
    engine server{"shm://", two_streams()};
    server.add_stream({.name = "w2", .pools = {"work"}});
    std::string why;
    others.run(GetParam(), [&] { why = error_of([&] { server.remove_stream("w2"); }).what(); });
    EXPECT_NE(why.find("cannot wait for its end"), std::string::npos) << why;
    EXPECT_TRUE(server.remove_stream("w2"));
}

TEST(added_stream, that_cannot_be_is_refused_with_the_reason) {
    engine server{"shm://",
                  {.streams = {{}, {.name = "own"}, {.pools = {"one", "work"}}},
                   .pools = {{.name = "one", .kind = pool_kind::fifo}, {.name = "work"}}}};
    const std::pair<stream_options, const char*> cases[] = {
        {{.name = "x"}, "the stream \"x\" cannot be added: it serves no pool"},
        {{.pools = {"work", "work"}}, "it lists a pool twice"},
        {{.cpu = 0, .cpus = cpu_set{0}, .pools = {"work"}}, "it has cpu and cpus"},
        {{.pools = {"one"}}, "the pool \"one\" is for the one stream that serves it"},
        {{.pools = {"own"}}, "the pool \"own\" is for the one stream that serves it"},
        {{.pools = {"none"}}, "this engine has no pool \"none\", expected one of: one, work"}};
    const std::string before = server.configuration();
    for (const auto& [how, why] : cases) {
        const error wrong = error_of([&, &how = how] { server.add_stream(how); });
        EXPECT_NE(std::string(wrong.what()).find(why), std::string::npos) << wrong.what();
    }
    EXPECT_EQ(error_of([&] { server.remove_stream("own"); }).code(), errc::in_use);
    EXPECT_EQ(server.configuration(), before);
    server.add_pool({.name = "many"}, 1024 - 3);
    EXPECT_NE(std::string(error_of([&] { server.add_stream({.pools = {"work"}}); }).what())
                  .find("the engine would have 1025 streams, expected at most 1024"),
              std::string::npos);
    server.stop();
    EXPECT_EQ(error_of([&] { server.add_stream({.pools = {"work"}}); }).code(), errc::closed);
    loop_network net;
    engine virtual_time(net.port("a"));
    EXPECT_EQ(error_of([&] { virtual_time.add_stream({.pools = {"amalgam"}}); }).code(),
              errc::invalid);
}

TEST(added_stream, and_added_pools_are_in_the_configuration_which_makes_an_equal_engine) {
    std::string first;
    {
        engine one{"shm://", two_streams()};
        one.add_pool({.name = "io", .kind = pool_kind::priority, .levels = 3}, 2);
        one.add_stream(
            {.name = "w2", .pools = {"io", "work"}, .scheduler = scheduler_kind::priority});
        one.remove_stream("w");
        const engine_options has = now(one).options;
        EXPECT_EQ(
            has.streams,
            (stream_set{
                {.name = "amalgam"},
                {.name = "amalgam-io", .pools = {"io"}},
                {.name = "amalgam-io", .pools = {"io"}},
                {.name = "w2", .pools = {"io", "work"}, .scheduler = scheduler_kind::priority}}));
        EXPECT_EQ(has.pools,
                  (std::vector<pool_options>{
                      {.name = "work"}, {.name = "io", .kind = pool_kind::priority, .levels = 3}}));
        first = one.configuration();
    }
    engine two(parse_engine_config(first).value());
    EXPECT_EQ(two.configuration(), first);
    EXPECT_EQ(streams_of(two, "io", 3), (std::set<std::string>{"amalgam-io", "w2"}));
}

TEST(removed_stream, whose_pool_runs_handlers_by_default_leaves_them_in_that_pool) {
    engine_config after;
    {
        engine server{"shm://",
                      {.streams = {{},
                                   {.name = "a", .pools = {"x"}},
                                   {.name = "b", .pools = {"y"}},
                                   {.name = "c", .pools = {"x"}}},
                       .pools = {{.name = "x"}, {.name = "y"}},
                       .progress = {.by = progress_by::own_stream}}};
        EXPECT_TRUE(server.remove_stream("a"));
        EXPECT_EQ(server.run(here), "c");
        after = now(server);
    }
    engine same(after);
    EXPECT_EQ(same.run(here), "c");
}

TEST(change_engine, adds_and_removes_streams_by_json) {
    engine server{"shm://", two_streams()};
    change_engine(server, R"({"add_pools": {"io": {}},
                              "add_streams": [{"name": "w2", "pools": ["work", "io"]}],
                              "remove_streams": ["w", "amalgam-io"]})");
    EXPECT_EQ(now(server).options.streams,
              (stream_set{{.name = "amalgam"}, {.name = "w2", .pools = {"work", "io"}}}));
    EXPECT_EQ(streams_of(server, "io", 1), std::set<std::string>{"w2"});
    EXPECT_EQ(error_of([&] { change_engine(server, R"({"remove_streams": ["w2"]})"); }).code(),
              errc::in_use);
}

TEST(change_engine, a_change_of_streams_that_fails_is_taken_back) {
    engine server{"shm://", two_streams()};
    server.add_pool({.name = "busy"}, 2);
    server.define("in busy", [] {}, {.in_pool = "busy"});
    const std::string before = server.configuration();
    const error why = error_of([&] {
        change_engine(server, R"({"add_pools": {"io": {}},
                                  "add_streams": [{"pools": ["io", "work"]}],
                                  "remove_streams": ["w", "amalgam-busy"],
                                  "remove_pools": ["busy"]})");
    });
    EXPECT_NE(std::string(why.what()).find("changes: remove_pools[0]: the pool \"busy\" cannot"),
              std::string::npos)
        << why.what();
    const engine_options then = parse_engine_config(before).value().options;
    ASSERT_EQ(now(server).options.pools, then.pools);
    ASSERT_EQ(now(server).options.streams.each.size(), then.streams.each.size());
    EXPECT_EQ(streams_of(server, "work", 1), std::set<std::string>{"w"});
    EXPECT_EQ(streams_of(server, "busy", 2), std::set<std::string>{"amalgam-busy"});
}

TEST(added_stream, comes_and_goes_under_load_and_no_call_is_lost) {
    engine server{"shm://", two_streams()};
    server.define("next", [](int n) {
        this_task::yield();
        return n + 1;
    });
    const auto next = server.procedure<int(int)>("next").on(server.lookup(server.address()));
    std::atomic<bool> done{false};
    std::thread changes([&] {
        while (!done) {
            server.add_stream({.name = "w2", .pools = {"work"}});
            EXPECT_TRUE(server.remove_stream("w2"));
        }
    });
    for (int round = 0; round < 50; ++round) {
        std::vector<future<int>> calls;
        for (int i = 0; i < 100; ++i)
            calls.push_back(next.start(i));
        for (int i = 0; i < 100; ++i)
            EXPECT_EQ(calls[static_cast<std::size_t>(i)].get(), i + 1);
    }
    done = true;
    changes.join();
}

TEST(added_stream, two_that_remove_the_last_two_leave_one) {
    engine server{"shm://", two_streams()};
    server.add_stream({.name = "w2", .pools = {"work"}});
    std::atomic<int> refused{0};
    const auto remove = [&](const char* name) {
        try {
            EXPECT_TRUE(server.remove_stream(name));
        } catch (const error& why) {
            EXPECT_EQ(why.code(), errc::in_use);
            ++refused;
        }
    };
    std::thread other([&] { remove("w"); });
    remove("w2");
    other.join();
    EXPECT_EQ(refused, 1);
    EXPECT_EQ(streams_of(server, "work", 1).size(), 1u);
}

TEST(added_stream, ends_with_its_engine_whatever_waits_there) {
    event never;
    engine server{"shm://", two_streams()};
    server.add_pool({.name = "io"});
    server.add_stream({.name = "w2", .pools = {"io", "work"}});
    event begun;
    server.define("wait",
                  [&] {
                      begun.set();
                      never.wait();
                  },
                  {.in_pool = "io"});
    auto call = server.procedure<void()>("wait").on(server.lookup(server.address())).start();
    begun.wait();
    server.stop();
    EXPECT_FALSE(call.wait().ok());
}

TEST(added_stream, may_run_the_handler_that_destroys_its_engine) {
    auto server = std::make_unique<engine>("shm://", two_streams());
    server->add_pool({.name = "io"});
    server->add_stream({.name = "w2", .pools = {"io"}});
    EXPECT_TRUE(server->remove_stream("amalgam-io"));
    event gone;
    std::string ran_on;
    server->define("end",
                   [&] {
                       ran_on = here();
                       server.reset();
                       gone.set();
                   },
                   {.in_pool = "io"});
    engine client{"shm://"};
    client.procedure<void()>("end").on(client.lookup(server->address())).post();
    gone.wait();
    EXPECT_EQ(ran_on, "w2");
}

}  // namespace
}  // namespace amalgam
