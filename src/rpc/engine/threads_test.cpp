#include <algorithm>
#include <atomic>
#include <coroutine>
#include <csignal>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/rpc/engine.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/fifo_pool.hpp>
#include <amalgam/tasks/inspect.hpp>
#include <amalgam/tasks/scheduler.hpp>
#include <amalgam/tasks/ult.hpp>

#include "rpc/loop_pair.hpp"

// Engines with threads, over every native transport.
namespace amalgam {
namespace {

using namespace std::chrono_literals;

class engine_threads : public testing::TestWithParam<const char*> {};

// The second URI is for engines that only call.
INSTANTIATE_TEST_SUITE_P(loop, engine_threads, testing::Values("loop://threads"));
INSTANTIATE_TEST_SUITE_P(shm, engine_threads, testing::Values("shm://"));
INSTANTIATE_TEST_SUITE_P(tcp, engine_threads, testing::Values("tcp://127.0.0.1:0"));

const char* client_of(const std::string& server) {
    if (server.starts_with("loop")) return "loop://threads-client";
    return server.starts_with("shm") ? "shm://" : "tcp://";
}

TEST_P(engine_threads, plain_threads_and_ults_call_at_once) {
    engine server{GetParam()};
    engine client{client_of(GetParam())};
    server.define("sum", [](int a, int b) { return a + b; });
    auto sum = client.procedure<int(int, int)>("sum").on(client.lookup(server.address()));
    std::vector<std::thread> threads;
    std::atomic<int> right{0};
    for (int t = 0; t < 3; ++t) {
        threads.emplace_back([&, t] {
            for (int i = 0; i < 200; ++i)
                right += sum(t, i) == t + i ? 1 : 0;
        });
    }
    const int in_ult = client.run([&] {
        int good = 0;
        for (int i = 0; i < 1000; ++i)
            good += sum(i, i) == 2 * i ? 1 : 0;
        return good;
    });
    for (auto& each : threads)
        each.join();
    EXPECT_EQ(right, 600);
    EXPECT_EQ(in_ult, 1000);
}

TEST_P(engine_threads, many_futures_from_a_plain_thread) {
    engine server{GetParam()};
    engine client{client_of(GetParam()), {.max_queued = 16}};
    server.define("echo", [](std::string text) { return text; });
    auto echo = client.procedure<std::string(std::string)>("echo").on(server.address());
    std::vector<future<std::string>> calls;
    for (int i = 0; i < 500; ++i)
        calls.push_back(echo.start(std::string(static_cast<std::size_t>(i) * 20, 'e')));
    for (std::size_t i = 0; i < calls.size(); ++i)
        EXPECT_EQ(calls[i].get().size(), i * 20);
}

TEST_P(engine_threads, one_way_calls_of_a_thread_keep_their_order_and_none_is_lost) {
    engine server{GetParam()};
    engine client{client_of(GetParam()), {.max_queued = 64}};
    std::vector<int> seen;
    event all;
    server.define("note", [&](int n, std::string_view) {
        seen.push_back(n);
        if (n == 4999) all.set();
    });
    auto note = client.procedure<void(int, std::string)>("note").on(server.address());
    const std::string bulk(500, 'n');
    for (int i = 0; i < 5000; ++i)
        note.post(i, bulk);
    all.wait();
    ASSERT_EQ(seen.size(), 5000u);
    EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
}

TEST_P(engine_threads, large_arguments_and_results_travel) {
    engine server{GetParam()};
    engine client{client_of(GetParam())};
    server.define("turn", [](std::vector<std::uint8_t> v) {
        return std::vector<std::uint8_t>(v.rbegin(), v.rend());
    });
    using bytes = std::vector<std::uint8_t>;
    auto turn = client.procedure<bytes(bytes)>("turn").on(server.address());
    for (const std::size_t size : {0u, 1u, 255u, 256u, 257u, 65'536u, 5'000'000u}) {
        bytes sent(size);
        for (std::size_t i = 0; i < size; ++i)
            sent[i] = static_cast<std::uint8_t>(i * 7);
        EXPECT_EQ(turn(sent), bytes(sent.rbegin(), sent.rend()));
    }
}

TEST_P(engine_threads, handlers_run_in_a_pool_of_the_users_choice) {
    fifo_pool own;
    execution_stream workers(std::make_unique<basic_scheduler>(std::vector<pool*>{&own}));
    engine server{GetParam(), {.streams = 2}};
    engine client{client_of(GetParam())};
    const auto here = [] { return reinterpret_cast<std::uintptr_t>(execution_stream::current()); };
    server.define("own", here, {.in = &own});
    server.define("second", here, {.in = &server.stream(1).main_pool()});
    server.define("first", here);
    const auto where = [&](const char* name) {
        return client.procedure<std::uintptr_t()>(name).on(server.address())();
    };
    for (int i = 0; i < 100; ++i) {
        EXPECT_EQ(where("own"), reinterpret_cast<std::uintptr_t>(&workers));
        EXPECT_EQ(where("second"), reinterpret_cast<std::uintptr_t>(&server.stream(1)));
        EXPECT_EQ(where("first"), reinterpret_cast<std::uintptr_t>(&server.stream()));
    }
    server.stop();
}

TEST_P(engine_threads, calls_wait_inside_handlers_without_blocking_others) {
    engine server{GetParam()};
    engine client{client_of(GetParam())};
    event go;
    server.define("wait", [&] {
        go.wait();
        return 1;
    });
    server.define("go", [&] { go.set(); });
    auto wait = client.procedure<int()>("wait").on(server.address());
    std::vector<future<int>> waiting;
    for (int i = 0; i < 50; ++i)
        waiting.push_back(wait.start());
    client.procedure<void()>("go").on(server.address())();
    int sum = 0;
    for (auto& each : waiting)
        sum += each.get();
    EXPECT_EQ(sum, 50);
}

TEST_P(engine_threads, a_call_to_oneself_from_a_plain_thread) {
    engine self{GetParam()};
    self.define("sum", [](int a, int b) { return a + b; });
    auto sum = self.procedure<int(int, int)>("sum").on(self.address());
    for (int i = 0; i < 100; ++i)
        EXPECT_EQ(sum(i, 1), i + 1);
}

TEST_P(engine_threads, deadlines_end_calls_that_nobody_answers) {
    event never;
    engine server{GetParam()};
    engine client{client_of(GetParam())};
    server.define("wait", [&] { never.wait(); });
    auto wait = client.procedure<void()>("wait").on(server.address());
    EXPECT_EQ(wait.within(20ms).try_call().code(), errc::timed_out);
    EXPECT_EQ(client.run([&] { return wait.within(20ms).try_call().code(); }), errc::timed_out);
    EXPECT_EQ(wait.within(0ms).try_call().code(), errc::timed_out);
    never.set();
}

TEST_P(engine_threads, stop_lets_calls_under_way_end) {
    engine server{GetParam()};
    engine client{client_of(GetParam()), {.drain = 30s}};
    event began;
    server.define("slow", [&] {
        began.set();
        this_task::sleep_for(50ms);
        return 3;
    });
    future<int> call = client.procedure<int()>("slow").on(server.address()).start();
    began.wait();
    client.stop();
    EXPECT_EQ(call.get(), 3);
}

TEST_P(engine_threads, two_ults_that_are_canceled_stop_an_engine_to_its_end) {
    engine server{GetParam()};
    engine client{client_of(GetParam()), {.drain = 30s}};
    execution_stream stops;
    event go, finish;
    server.define("wait", [&] { finish.wait(); });
    future<void> call = client.procedure<void()>("wait").on(server.address()).start();
    std::atomic<int> stopped{0};
    ult both[2];
    for (ult& each : both) {
        each = spawn(stops,
                     [&] {
                         go.wait();
                         each.cancel();
                         client.stop();
                         ++stopped;
                         this_task::yield();  // canceled here
                         ++stopped;
                     },
                     {.name = "stops"});
    }
    go.set();
    const auto waiting = [] {
        const std::vector<ult_info> all = list_ults();
        return std::count_if(all.begin(), all.end(), [](const ult_info& one) {
            return one.name == "stops" && one.waits_for == "an engine to end";
        });
    };
    while (waiting() != 2)
        std::this_thread::yield();
    finish.set();
    EXPECT_TRUE(call.wait().ok());
    for (ult& each : both)
        EXPECT_EQ(error_of([&] { each.join(); }).code(), errc::canceled);
    EXPECT_EQ(stopped, 2);
}

/// Number of calls that reached the server from a client destroyed right after posting.
template <typename Post>
std::size_t arrived_behind(const char* uri, Post post) {
    engine server{uri};
    event gone;
    std::atomic<std::size_t> arrived{0};
    server.define("take", [&](std::string_view what) { arrived += what.size(); });
    const auto told = server.on_peer_lost([&](const peer&, status) { gone.set(); });
    {
        engine client{client_of(uri), {.drain = 30s}};
        post(client.procedure<void(std::string)>("take").on(server.address()));
    }
    gone.wait();
    server.run([] { this_task::yield(); });  // Handlers that were ready have started.
    return arrived;
}

TEST_P(engine_threads, what_is_fetched_of_a_post_arrives_although_its_engine_is_destroyed_at_once) {
    const std::string large(8'000'000, 'l');
    EXPECT_EQ(arrived_behind(GetParam(), [&](auto take) { take.post(large); }), large.size());
}

TEST_P(engine_threads, a_result_that_is_fetched_arrives_although_its_engine_is_stopped_at_once) {
    engine server{GetParam(), {.drain = 30s}};
    engine client{client_of(GetParam())};
    event served;
    server.define("large", [&] {
        served.set();
        return std::string(8'000'000, 'l');
    });
    auto large = client.procedure<std::string()>("large").on(server.address()).start();
    served.wait();
    server.stop();
    EXPECT_TRUE(large.wait().ok());
}

TEST_P(engine_threads, stop_ends_what_does_not_end_with_closed) {
    event never;
    engine server{GetParam(), {.drain = 20ms}};
    auto client = std::make_unique<engine>(client_of(GetParam()), engine_options{.drain = 20ms});
    server.define("wait", [&] { never.wait(); });
    auto wait = client->procedure<void()>("wait").on(server.address());
    future<void> from_thread = wait.start();
    future<errc> from_ult = client->spawn([&] { return wait.try_call().code().code; });
    EXPECT_EQ(wait.within(5ms).try_call().code(), errc::timed_out);  // So they have started.
    client->stop();
    client->stop();
    EXPECT_EQ(from_thread.wait().code, errc::closed);
    EXPECT_EQ(from_ult.get(), errc::closed);
    EXPECT_EQ(wait.try_call().code(), errc::closed);
    EXPECT_EQ(error_of([&] { wait.post(); }).code(), errc::closed);
    EXPECT_EQ(client->try_lookup("tcp://127.0.0.1:1").code(), errc::closed);
    client.reset();
    never.set();
}

TEST_P(engine_threads, a_handler_may_stop_its_engine_while_others_stop_it) {
    for (const std::size_t where : {0u, 1u}) {
        engine server{GetParam(), {.streams = 2, .drain = 30s}};
        engine client{client_of(GetParam())};
        event began;
        server.define("hello", [] {});
        auto hello = server.procedure<void()>("hello").on(server.address());
        server.define("stop",
                      [&] {
                          began.set();
                          while (hello.try_call().ok())  // Until others begin to stop it.
                              continue;
                          server.stop();
                          return 1;
                      },
                      {.in = &server.stream(where).main_pool()});
        future<int> call = client.procedure<int()>("stop").on(server.address()).start();
        began.wait();
        std::thread other([&] { server.stop(); });
        server.stop();
        other.join();
        EXPECT_EQ(call.get(), 1);
    }
}

TEST_P(engine_threads, a_handler_of_any_stream_may_stop_its_engine) {
    for (const std::size_t where : {0u, 1u}) {
        engine server{GetParam(), {.streams = 2}};
        engine client{client_of(GetParam())};
        event stopped;
        server.define("stop",
                      [&] {
                          server.stop();
                          stopped.set();
                      },
                      {.in = &server.stream(where).main_pool()});
        future<void> call = client.procedure<void()>("stop").on(server.address()).start();
        stopped.wait();
        const errc code = call.wait().code;
        EXPECT_TRUE(code == errc::disconnected || code == errc::unavailable) << name(code);
    }
}

TEST_P(engine_threads, callers_of_a_stopped_server_are_told) {
    auto server = std::make_unique<engine>(GetParam(), engine_options{.drain = 20ms});
    engine client{client_of(GetParam())};
    event never;
    server->define("wait", [&] { never.wait(); });
    server->define("hello", [] {});
    const peer there = client.lookup(server->address());
    client.procedure<void()>("hello").on(there)();
    auto wait = client.procedure<void()>("wait").on(there);
    std::vector<future<void>> calls;
    for (int i = 0; i < 10; ++i)
        calls.push_back(wait.start());
    server.reset();
    for (auto& each : calls) {
        const errc code = each.wait().code;
        EXPECT_TRUE(code == errc::disconnected || code == errc::unavailable) << name(code);
    }
}

TEST_P(engine_threads, threads_that_call_while_it_stops_all_get_an_answer) {
    for (int round = 0; round < 10; ++round) {
        engine server{GetParam()};
        server.define("sum", [](int a, int b) { return a + b; });
        engine client{client_of(GetParam()), {.drain = 1ms}};
        auto sum = client.procedure<int(int, int)>("sum").on(server.address());
        std::vector<std::thread> threads;
        std::atomic<int> calls{0};
        for (int t = 0; t < 3; ++t) {
            threads.emplace_back([&] {
                for (;;) {
                    const result<int> five = sum.try_call(2, 3);
                    ++calls;
                    if (five.ok()) continue;
                    EXPECT_EQ(five.code(), errc::closed);
                    return;
                }
            });
        }
        while (calls < 20)
            std::this_thread::yield();
        client.stop();
        for (auto& each : threads)
            each.join();
    }
}

struct detached {
    struct promise_type {
        detached get_return_object() noexcept { return {}; }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_never final_suspend() noexcept { return {}; }
        void return_void() noexcept {}
        void unhandled_exception() noexcept { ADD_FAILURE() << "a coroutine threw"; }
    };
};

detached add_up(bound_procedure<int(int, int)> sum, promise<int> done) {
    int total = 0;
    for (int i = 0; i < 100; ++i)
        total = co_await sum.start(total, i);
    done.set_value(total);
}

TEST_P(engine_threads, coroutines_await_calls) {
    engine server{GetParam()};
    engine client{client_of(GetParam())};
    server.define("sum", [](int a, int b) { return a + b; });
    promise<int> done;
    future<int> total = done.get_future();
    add_up(client.procedure<int(int, int)>("sum").on(server.address()), std::move(done));
    EXPECT_EQ(total.get(), 4950);
}

TEST_P(engine_threads, a_cancel_meets_a_handler_that_hands_its_responder_on) {
    engine server{GetParam(), {.streams = 2}};
    engine client{client_of(GetParam())};
    server.define("hand_on",
                  [&](responder<int> answer) {
                      post(server.stream(), [late = std::move(answer)]() mutable { late(1); });
                  },
                  {.in = &server.stream(1).main_pool()});
    auto hand_on = client.procedure<int()>("hand_on").on(server.address());
    for (int i = 0; i < 300; ++i) {
        future<int> call = hand_on.start();
        for (int spin = 0; spin < i % 50; ++spin)
            std::this_thread::yield();
        call.cancel();
        const errc how = call.wait().code;
        EXPECT_TRUE(how == errc::ok || how == errc::canceled) << name(how);
    }
    EXPECT_EQ(hand_on(), 1);
}

TEST_P(engine_threads, any_thread_cancels_a_stream_and_its_reader_wakes) {
    event never;  // Outlives the handler that waits for it.
    engine server{GetParam()};
    engine client{client_of(GetParam())};
    server.define("numbers", [&](stream_writer<int>& out) {
        out(1);
        never.wait();
    });
    auto numbers = client.procedure<streamed<int>()>("numbers").on(server.address());
    for (const bool in_ult : {false, true}) {
        streamed<int> values = numbers();
        EXPECT_EQ(values.next(), 1);
        std::atomic<bool> reads{false};
        const auto reader = [&] {
            reads = true;
            return error_of([&] { values.next(); }).code().code;
        };
        std::promise<errc> ended;
        std::thread waits;
        if (in_ult) {
            post(client.stream(), [&] { ended.set_value(reader()); });
        } else {
            waits = std::thread([&] { ended.set_value(reader()); });
        }
        while (!reads)
            std::this_thread::yield();
        std::thread([&] { values.cancel(); }).join();
        EXPECT_EQ(ended.get_future().get(), errc::canceled);
        if (waits.joinable()) waits.join();
        values.cancel();
    }
    never.set();
}

TEST_P(engine_threads, a_stream_that_outlives_its_engine_gives_what_had_come_and_then_throws) {
    engine server{GetParam()};
    auto client = std::make_unique<engine>(client_of(GetParam()), engine_options{.drain = 1ms});
    server.define("numbers", [&](stream_writer<int>& out) {
        for (int i = 0;; ++i)
            out(i);
    });
    auto numbers = client->procedure<streamed<int>()>("numbers").on(server.address());
    streamed<int> values = numbers.window(4)();
    streamed<int> canceled = numbers.window(4)();
    streamed<int> left = numbers.window(4)();
    for (streamed<int>* each : {&values, &canceled, &left})
        EXPECT_EQ(each->next(), 0);
    client.reset();
    canceled.cancel();
    for (streamed<int>* each : {&values, &canceled}) {
        int read = 1;
        const error why = error_of([&] {
            while (const std::optional<int> next = each->next())
                EXPECT_EQ(*next, read++);
        });
        EXPECT_EQ(why.code(), errc::closed);
        EXPECT_LE(read, 6);
    }
}

TEST_P(engine_threads, a_future_that_outlives_its_engine_is_closed) {
    event never;
    engine server{GetParam()};
    auto client = std::make_unique<engine>(client_of(GetParam()), engine_options{.drain = 1ms});
    server.define("wait", [&](const std::string&) { never.wait(); });
    future<void> call = client->procedure<void(std::string)>("wait")
                            .on(server.address())
                            .start(std::string(10'000, 'x'));
    client.reset();
    EXPECT_EQ(call.wait(), errc::closed);
    never.set();
}

/// Moved between the check that the engine runs and the hand-over to its stream: there it waits
/// until the engine is closed, and a while for its streams to end.
struct slow_to_move {
    slow_to_move(engine& which, std::atomic<bool>& begin, std::atomic<bool>& ended)
        : on(which), stop(begin), stopped(ended) {}
    slow_to_move(slow_to_move&& from) noexcept
        : on(from.on), stop(from.stop), stopped(from.stopped), moves(from.moves + 1) {
        if (moves < 2) return;  // First by spawn(), then into its ULT.
        stop.store(true);
        while (!refuses())
            std::this_thread::yield();
        for (int i = 0; i < 1000 && !stopped.load(); ++i)
            std::this_thread::sleep_for(10us);
    }
    void operator()() {}
    bool refuses() const noexcept {
        try {
            (void)on.spawn([] {});
            return false;
        } catch (const error&) {
            return true;
        }
    }
    engine& on;
    std::atomic<bool>& stop;
    std::atomic<bool>& stopped;
    int moves = 0;
};

TEST_P(engine_threads, what_is_spawned_while_it_stops_runs_or_is_refused) {
    engine on{client_of(GetParam())};
    std::atomic<bool> stop{false}, stopped{false};
    std::thread stopper([&] {
        while (!stop.load())
            std::this_thread::yield();
        on.stop();
        stopped.store(true);
    });
    try {
        on.run(slow_to_move(on, stop, stopped));
    } catch (const error& why) {
        EXPECT_EQ(why.code().code, errc::closed) << why.what();
    }
    stop.store(true);
    stopper.join();
}

TEST(engine_ports, one_engine_serves_and_calls_over_shm_and_tcp_at_once) {
    engine server{{"shm://", "tcp://127.0.0.1:0"}};
    engine client{{"tcp://", "shm://"}};
    ASSERT_EQ(server.addresses().size(), 2u);
    server.define("port", [] { return static_cast<int>(call_context::current().from().port()); });
    auto port = client.procedure<int()>("port");
    for (int i = 0; i < 50; ++i) {
        EXPECT_EQ(port.on(server.addresses()[0])(), 0);
        EXPECT_EQ(port.on(server.addresses()[1])(), 1);
    }
    EXPECT_EQ(client.lookup(server.addresses()[0]).address(), server.addresses()[0]);
}

TEST(engine_threads, leave_the_signals_of_the_program_to_its_own_threads) {
    engine here{"loop://signals", {.streams = 2}};
    for (std::size_t i = 0; i < here.stream_count(); ++i) {
        sigset_t blocked;
        spawn(here.stream(i).main_pool(), [&blocked] {
            ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
        }).join();
        for (const int each : {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGUSR1, SIGUSR2, SIGALRM})
            EXPECT_EQ(sigismember(&blocked, each), 1) << each;
        for (const int each : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGPROF})
            EXPECT_EQ(sigismember(&blocked, each), 0) << each;
    }
    sigset_t mine;
    ::pthread_sigmask(SIG_BLOCK, nullptr, &mine);
    EXPECT_EQ(sigismember(&mine, SIGINT), 0);
}

}  // namespace
}  // namespace amalgam
