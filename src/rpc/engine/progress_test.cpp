#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/rpc/engine.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/ult.hpp>

#include "rpc/loop_pair.hpp"

// Where handlers run and who makes progress, over transports with threads.
namespace amalgam {
namespace {

using namespace std::chrono_literals;

class engine_progress : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(shm, engine_progress, testing::Values("shm://"));
INSTANTIATE_TEST_SUITE_P(tcp, engine_progress, testing::Values("tcp://127.0.0.1:0"));

std::string stream_here() {
    return std::string(execution_stream::current()->name());
}

/// Threads of this process with that OS name.
std::size_t threads_named(const std::string& name) {
    std::size_t count = 0;
    for (const auto& each : std::filesystem::directory_iterator("/proc/self/task")) {
        std::ifstream file(each.path() / "comm");
        std::string found;
        count += std::getline(file, found) && found == name ? 1 : 0;
    }
    return count;
}

/// New threads get their name, and joined ones leave the list, with a delay.
void wait_for_threads(const std::string& name, std::size_t count) {
    while (threads_named(name) != count)
        std::this_thread::yield();
}

TEST_P(engine_progress, a_stream_of_its_own_runs_no_handlers_but_inline_ones) {
    engine server{GetParam(), {.name = "s", .progress = {.by = progress_by::own_stream}}};
    engine client{GetParam(), {.name = "c", .progress = {.by = progress_by::own_stream}}};
    EXPECT_EQ(server.stream_count(), 2u);
    server.define("ult", stream_here);
    server.define("inline", stream_here, {.run = handler::inline_});
    const auto ask = [&](const char* name) {
        return client.procedure<std::string()>(name).on(server.address())();
    };
    EXPECT_EQ(ask("ult"), "s-1");
    EXPECT_EQ(ask("inline"), "s");
    EXPECT_EQ(client.run([&] { return stream_here() + " " + ask("ult"); }), "c-1 s-1");
    EXPECT_EQ(&server.pool(), &server.stream(1).main_pool());
}

TEST_P(engine_progress, a_handler_that_holds_its_stream_does_not_hold_the_ports) {
    engine server{GetParam(), {.progress = {.by = progress_by::own_stream}}};
    engine client{GetParam()};
    std::atomic<bool> let_go{false};
    event began;
    server.define("hold", [&] {
        began.set();
        while (!let_go)  // Blocks the stream on purpose.
            std::this_thread::yield();
    });
    future<void> held = client.procedure<void()>("hold").on(server.address()).start();
    began.wait();
    EXPECT_EQ(
        client.procedure<std::uint64_t(std::uint64_t)>("amalgam.ping").on(server.address())(3), 3u);
    let_go = true;
    held.get();
}

TEST_P(engine_progress, changes_under_load_and_no_call_is_lost) {
    std::mutex lock;
    std::set<std::string> seen;
    engine server{GetParam(), {.name = "s"}};
    engine client{GetParam(), {.name = "c"}};
    server.define("f", [&](int n) {
        const std::lock_guard hold(lock);
        seen.insert(stream_here());
        return n;
    });
    std::atomic<bool> done{false};
    std::atomic<long> right{0}, wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t) {
        threads.emplace_back([&, t] {
            auto f = client.procedure<int(int)>("f").on(server.address());
            for (int i = 0; !done || i < 100; ++i)
                (f(i + t) == i + t ? right : wrong) += 1;
        });
    }
    const progress_options ways[] = {{progress_by::own_stream, always_spin},
                                     {progress_by::shared, 0ns},
                                     {progress_by::own_stream, 0ns},
                                     {progress_by::shared, adaptive_spin}};
    for (int i = 0; i < 40; ++i) {
        const long before = right;
        server.set_progress(ways[i % 4]);
        client.set_progress(ways[(i + 1) % 4]);
        while (right < before + 5 && wrong == 0)
            std::this_thread::yield();
    }
    done = true;
    for (auto& each : threads)
        each.join();
    EXPECT_EQ(wrong, 0);
    {
        const std::lock_guard hold(lock);
        EXPECT_EQ(seen, (std::set<std::string>{"s", "s-1"}));
    }
    EXPECT_EQ(server.stream_count(), 2u);
    EXPECT_EQ(server.stream(1).name(), "s-1");
    EXPECT_EQ(&server.pool("s-1"), &server.stream(1).main_pool());
}

TEST_P(engine_progress, idle_uses_no_cpu_and_busy_never_sleeps) {
    engine server{GetParam()};
    server.define("f", [] {});
    engine client{GetParam()};
    auto f = client.procedure<void()>("f").on(server.address());
    engine watch{"shm://"};
    const auto cpu_while_idle = [&] {
        const auto before = server.stream().cpu_time();
        watch.run([] { this_task::sleep_for(100ms); });
        return server.stream().cpu_time() - before;
    };
    for (const progress_options how : {progress_options{progress_by::shared, adaptive_spin},
                                       progress_options{progress_by::own_stream, 0ns},
                                       progress_options{progress_by::own_stream, adaptive_spin}}) {
        server.set_progress({.by = how.by, .spin = always_spin});
        const auto before = server.stream().cpu_time();
        while (server.stream().cpu_time() - before < 20ms)  // More than idle ones use.
            std::this_thread::yield();
        server.set_progress(how);
        f();
        EXPECT_LT(cpu_while_idle(), 20ms);
    }
}

TEST_P(engine_progress, handlers_that_would_be_left_on_the_first_stream_forbid_it_one_of_its_own) {
    engine here{GetParam(), {.name = "e", .streams = {{}, {.name = "w"}}, .handlers = "e"}};
    const error refused = error_of([&] { here.set_progress({.by = progress_by::own_stream}); });
    EXPECT_EQ(refused.code(), errc::invalid);
    EXPECT_NE(std::string(refused.what()).find("handlers is \"e\""), std::string::npos);
    here.set_progress({.spin = 1us});  // The engine is unchanged.
    EXPECT_EQ(here.run(stream_here), "e");
}

TEST_P(engine_progress, a_procedure_has_streams_of_its_own_until_it_is_undefined) {
    engine server{GetParam()};
    engine client{GetParam()};
    const peer there = client.lookup(server.address());
    const auto handlers_at_once = [&](unsigned streams) {
        // Only separate streams let so many handlers block threads at once.
        std::atomic<unsigned> inside{0};
        server.define("own",
                      [&] {
                          ++inside;
                          while (inside < streams)
                              std::this_thread::yield();
                          return stream_here();
                      },
                      {.streams = streams});
        auto own = client.procedure<std::string()>("own").on(there);
        std::vector<future<std::string>> calls;
        for (unsigned i = 0; i < streams; ++i)
            calls.push_back(own.start());
        for (auto& each : calls)
            EXPECT_EQ(each.get(), "own");
        EXPECT_TRUE(server.undefine("own"));
    };
    for (int i = 0; i < 5; ++i) {
        handlers_at_once(1);
        handlers_at_once(3);
    }
    EXPECT_EQ(server.stream_count(), 1u);
}

TEST_P(engine_progress, streams_of_a_procedure_end_when_its_last_call_has) {
    engine server{GetParam()};
    engine client{GetParam()};
    int others = 0;
    for (const bool define : {true, false}) {
        event began, go;
        server.define("slow",
                      [&] {
                          began.set();
                          go.wait();
                          return 1;
                      },
                      {.streams = 2});
        future<int> call = client.procedure<int()>("slow").on(server.address()).start();
        began.wait();
        wait_for_threads("slow", 2);
        EXPECT_TRUE(server.undefine("slow"));
        wait_for_threads("slow", 2);  // The call still runs there.
        go.set();
        EXPECT_EQ(call.get(), 1);
        // The next define or undefine ends them, once the handler's ULT is gone, too.
        while (threads_named("slow") != 0) {
            if (define) {
                server.define(std::to_string(++others), [] {});
            } else {
                EXPECT_FALSE(server.undefine("slow"));
            }
            std::this_thread::yield();
        }
    }
}

TEST_P(engine_progress, stop_ends_the_streams_of_procedures) {
    {
        engine server{GetParam()};
        server.define("own", [] {}, {.streams = 2});
        wait_for_threads("own", 2);
        EXPECT_EQ(error_of([&] { server.define("own", [] {}, {.streams = 2}); }).code(),
                  errc::invalid);
        wait_for_threads("own", 2);  // The streams of the refused one have ended.
        EXPECT_EQ(error_of([&] { server.define("many", [] {}, {.streams = 5000}); }).code(),
                  errc::invalid);
    }
    wait_for_threads("own", 0);
}

TEST_P(engine_progress, a_handler_on_a_stream_of_its_own_may_undefine_itself_and_stop_the_engine) {
    engine server{GetParam()};
    engine client{GetParam()};
    event stopped;
    server.define("end",
                  [&] {
                      EXPECT_TRUE(server.undefine("end"));
                      server.stop();
                      stopped.set();
                  },
                  {.streams = 1});
    future<void> call = client.procedure<void()>("end").on(server.address()).start();
    stopped.wait();
    const errc code = call.wait().code;
    EXPECT_TRUE(code == errc::disconnected || code == errc::closed) << name(code);
}

}  // namespace
}  // namespace amalgam
