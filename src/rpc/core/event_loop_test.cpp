#include <array>
#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <amalgam/core/unique_fd.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/interceptor.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/ult.hpp>

#include "rpc/loop_pair.hpp"

// Engines in their user's event loop.
namespace amalgam {
namespace {

using namespace std::chrono_literals;

constexpr progress_options by_caller{.by = progress_by::caller};

/// An event loop on its own thread, with one engine, created and destroyed there.
class loop_thread {
public:
    explicit loop_thread(const std::string& uri, engine_options options = {}) {
        options.progress = by_caller;
        std::promise<engine*> made;
        auto ready = made.get_future();
        thread_ = std::thread([this, uri, options, made = std::move(made)]() mutable {
            engine here(uri, options);
            made.set_value(&here);
            run(here);
        });
        engine_ = ready.get();
    }
    ~loop_thread() {
        const std::uint64_t one = 1;
        EXPECT_EQ(::write(end_.get(), &one, sizeof one), 8);
        thread_.join();
    }
    engine& here() { return *engine_; }
    int wakes() const { return wakes_; }

private:
    void run(engine& here) {
        const unique_fd loop(::epoll_create1(EPOLL_CLOEXEC));
        for (const int fd : {here.wait_handle(), end_.get()}) {
            epoll_event wanted{};
            wanted.events = EPOLLIN;
            wanted.data.fd = fd;
            ASSERT_EQ(::epoll_ctl(loop.get(), EPOLL_CTL_ADD, fd, &wanted), 0);
        }
        for (;;) {
            std::array<epoll_event, 4> came{};
            const int count = ::epoll_wait(loop.get(), came.data(), came.size(), -1);
            for (int i = 0; i < count; ++i) {
                if (came[static_cast<std::size_t>(i)].data.fd == end_.get()) return;
                here.progress();
            }
            ++wakes_;
        }
    }

    unique_fd end_{::eventfd(0, EFD_CLOEXEC)};
    std::atomic<int> wakes_{0};
    engine* engine_ = nullptr;
    std::thread thread_;
};

/// A minimal event loop.
template <typename Done>
void loop_until(engine& here, Done done) {
    while (!done()) {
        pollfd wakes{here.wait_handle(), POLLIN, 0};
        ASSERT_EQ(::poll(&wakes, 1, -1), 1);
        here.progress();
    }
}

class engine_loop : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(shm, engine_loop, testing::Values("shm://"));
INSTANTIATE_TEST_SUITE_P(tcp, engine_loop, testing::Values("tcp://127.0.0.1:0"));

TEST_P(engine_loop, threads_that_call_through_a_sleeping_loop_lose_no_wake_up) {
    loop_thread server(GetParam());
    loop_thread client(GetParam());
    server.here().define("sum", [](int a, int b) { return a + b; });
    auto sum = client.here().procedure<int(int, int)>("sum").on(server.here().address());
    std::vector<std::thread> threads;
    std::atomic<int> right{0};
    for (int t = 0; t < 3; ++t) {
        threads.emplace_back([&, t] {
            for (int i = 0; i < 500; ++i)
                right += sum(t, i) == t + i ? 1 : 0;
        });
    }
    for (auto& each : threads)
        each.join();
    EXPECT_EQ(right, 1500);
}

TEST_P(engine_loop, ults_of_it_call_wait_and_sleep) {
    loop_thread server(GetParam());
    loop_thread client(GetParam());
    server.here().define("slow", [](int n) {
        this_task::sleep_for(1ms);
        return n;
    });
    auto slow = client.here().procedure<int(int)>("slow").on(server.here().address());
    const int total = client.here().run([&] {
        int sum = 0;
        for (int i = 0; i < 20; ++i)
            sum += slow.within(60s)(i);
        return sum;
    });
    EXPECT_EQ(total, 190);
    event never;
    server.here().define("wait", [&] { never.wait(); });
    auto wait = client.here().procedure<void()>("wait").on(server.here().address());
    EXPECT_EQ(wait.within(20ms).try_call().code(), errc::timed_out);
    never.set();
}

TEST_P(engine_loop, one_thread_has_several_engines_and_starts_calls_between_their_turns) {
    engine server{GetParam(), {.progress = by_caller}};
    engine client{GetParam(), {.progress = by_caller}};
    server.define("sum", [](int a, int b) { return a + b; });
    const unique_fd loop(::epoll_create1(EPOLL_CLOEXEC));
    for (engine* each : {&server, &client}) {
        epoll_event wanted{};
        wanted.events = EPOLLIN;
        wanted.data.ptr = each;
        ASSERT_EQ(::epoll_ctl(loop.get(), EPOLL_CTL_ADD, each->wait_handle(), &wanted), 0);
    }
    auto there = client.procedure<int(int, int)>("sum").on(server.address());
    auto self = client.procedure<int(int, int)>("sum").on(client.address());
    client.define("sum", [](int a, int b) { return a + b; });
    for (int i = 0; i < 300; ++i) {
        // For a call to oneself, only the start itself can wake the loop.
        future<int> sums[] = {there.start(i, 1), self.start(i, 2)};
        while (!sums[0].ready() || !sums[1].ready()) {
            epoll_event came{};
            ASSERT_EQ(::epoll_wait(loop.get(), &came, 1, -1), 1);
            static_cast<engine*>(came.data.ptr)->progress();
        }
        EXPECT_EQ(sums[0].get(), i + 1);
        EXPECT_EQ(sums[1].get(), i + 2);
    }
}

// Nothing that its port watches tells of it: it is a message to itself.
TEST_P(engine_loop, a_call_to_itself_between_its_turns_wakes_it) {
    engine here(GetParam(), {.progress = by_caller});
    here.define("next", [](int a) { return a + 1; });
    const auto next = here.procedure<int(int)>("next").on(here.address());
    for (int i = 0; i < 3; ++i) {
        future<int> answer = next.start(i);
        loop_until(here, [&] { return answer.ready(); });
        EXPECT_EQ(answer.get(), i + 1);
    }
}

TEST_P(engine_loop, progress_stops_soon_after_as_many_things_as_it_was_asked_for) {
    engine here{GetParam(), {.progress = by_caller}};
    here.progress();
    int ran = 0;
    std::vector<future<void>> all;
    for (int i = 0; i < 500; ++i)
        all.push_back(here.spawn([&] { ++ran; }));
    for (int turns = 1; ran < 500; ++turns) {
        pollfd handle{here.wait_handle(), POLLIN, 0};
        ASSERT_EQ(::poll(&handle, 1, -1), 1) << "readable while there is more to do";
        EXPECT_LE(here.progress(10), 20u);
        EXPECT_LE(ran, 20 * turns);
    }
}

TEST_P(engine_loop, the_loops_thread_is_refused_what_would_never_end) {
    engine here{GetParam(), {.progress = by_caller}};
    here.define("f", [](int n) { return n; });
    auto f = here.procedure<int(int)>("f").on(here.address());
    const error refused = error_of([&] { f(1); });
    EXPECT_EQ(refused.code(), errc::invalid);
    EXPECT_NE(std::string(refused.what()).find("progress()"), std::string::npos);
    EXPECT_EQ(error_of([&] { here.run([] {}); }).code(), errc::invalid);
    // The same from a ULT of the engine parks.
    future<int> inside = here.spawn([&] { return f(2); });
    loop_until(here, [&] { return inside.ready(); });
    EXPECT_EQ(inside.get(), 2);
    EXPECT_TRUE(here.undefine("f"));
    const error stands = error_of([&] { here.wait_until_stopped(); });
    EXPECT_EQ(stands.code(), errc::invalid);
    EXPECT_NE(std::string(stands.what()).find("call progress() until stopped()"),
              std::string::npos);
    here.stop();
    here.wait_until_stopped();  // Returns at once.
}

TEST_P(engine_loop, progress_is_refused_inside_itself_and_on_engines_with_a_thread) {
    engine here{GetParam(), {.progress = by_caller}};
    future<errc> inside =
        here.spawn([&] { return error_of([&] { here.progress(); }).code().code; });
    loop_until(here, [&] { return inside.ready(); });
    EXPECT_EQ(inside.get(), errc::invalid);
    engine threaded{GetParam()};
    EXPECT_EQ(error_of([&] { threaded.progress(); }).code(), errc::invalid);
    const error no_handle = error_of([&] { threaded.wait_handle(); });
    EXPECT_EQ(no_handle.code(), errc::invalid);
    EXPECT_STREQ(no_handle.what(),
                 "this engine makes progress by itself: wait_handle() is only for engines created "
                 "with engine_options{.progress = {.by = progress_by::caller}}");
    EXPECT_EQ(error_of([&] { here.set_progress({.by = progress_by::shared}); }).code(),
              errc::invalid);
    EXPECT_EQ(error_of([&] { threaded.set_progress(by_caller); }).code(), errc::invalid);
}

TEST_P(engine_loop, its_stop_drains_calls_under_way) {
    loop_thread server(GetParam());
    event began;
    server.here().define("slow", [&] {
        began.set();
        this_task::sleep_for(20ms);
        return 3;
    });
    engine client{GetParam(), {.progress = by_caller, .drain = 30s}};
    future<int> call = client.procedure<int()>("slow").on(server.here().address()).start();
    loop_until(client, [&] { return began.is_set(); });
    client.stop();
    ASSERT_TRUE(call.ready());
    EXPECT_EQ(call.get(), 3);
    EXPECT_EQ(client.progress(), 0u);
    // A loop that keeps watching it is not woken.
    pollfd quiet{client.wait_handle(), POLLIN, 0};
    EXPECT_EQ(::poll(&quiet, 1, 0), 0);
}

TEST_P(engine_loop, another_thread_may_end_it_when_its_loop_has_ended) {
    auto here = std::make_unique<engine>(GetParam(), engine_options{.progress = by_caller});
    future<void> work = here->spawn([] { this_task::sleep_for(1ms); });
    std::thread([&] { loop_until(*here, [&] { return work.ready(); }); }).join();
    here.reset();
}

TEST_P(engine_loop, a_completion_outside_of_progress_that_destroys_it_leaves_nothing) {
    struct mark : interceptor {};
    for (const bool stopped : {false, true}) {
        auto seen = std::make_shared<mark>();
        const std::weak_ptr<mark> inside = seen;
        auto here = std::make_unique<engine>(
            GetParam(), engine_options{.progress = by_caller, .interceptors = {seen}});
        seen.reset();
        if (stopped) here->stop();
        auto ping = here->procedure<std::uint64_t(std::uint64_t)>("amalgam.ping");
        ping.on(peer()).call_then([&](const result<std::uint64_t>&) { here.reset(); }, 1);
        EXPECT_EQ(here, nullptr);
        EXPECT_TRUE(inside.expired());
    }
}

TEST_P(engine_loop, a_callback_may_stop_or_destroy_another_of_its_loop) {
    struct mark : interceptor {};
    for (const bool destroys : {false, true}) {
        for (const unsigned streams : {1u, 2u}) {
            auto seen = std::make_shared<mark>();
            const std::weak_ptr<mark> inside = seen;
            engine here{GetParam(), {.progress = by_caller}};
            auto other = std::make_unique<engine>(
                GetParam(),
                engine_options{.streams = streams, .progress = by_caller, .interceptors = {seen}});
            seen.reset();
            bool told = false, called = false;
            other->procedure<void()>("nothing")
                .on(here.address())
                .call_then([&](const result<void>&) { told = true; });
            auto ping = here.procedure<std::uint64_t(std::uint64_t)>("amalgam.ping");
            ping.on(here.address())
                .call_then(
                    [&](const result<std::uint64_t>&) {
                        destroys ? other.reset() : other->stop();
                        called = true;
                    },
                    1);
            while (!called)
                here.progress();
            while (other != nullptr && !told)
                other->progress();
            other.reset();
            EXPECT_TRUE(told);
            EXPECT_TRUE(inside.expired());
        }
    }
}

TEST_P(engine_loop, a_handler_may_stop_it) {
    loop_thread client(GetParam());
    auto server = std::make_unique<engine>(GetParam(), engine_options{.progress = by_caller});
    std::atomic<bool> stopped{false};
    server->define("stop", [&] {
        server->stop();
        stopped = true;
    });
    future<void> call = client.here().procedure<void()>("stop").on(server->address()).start();
    loop_until(*server, [&] { return stopped.load(); });
    const errc code = call.wait().code;
    EXPECT_TRUE(code == errc::disconnected || code == errc::closed) << name(code);
    server.reset();
}

TEST_P(engine_loop, a_timer_wakes_it_and_next_timer_says_when) {
    engine here{GetParam(), {.progress = by_caller}};
    future<void> nap;
    do {  // Anew if it is over already: on a busy machine a turn may take longer.
        nap = here.spawn([] { this_task::sleep_for(30ms); });
        while (here.progress() != 0)
            continue;
    } while (nap.ready());
    ASSERT_TRUE(here.next_timer().has_value());
    EXPECT_LE(*here.next_timer(), here.now() + 30ms);
    int wakes = 0;
    loop_until(here, [&] {
        ++wakes;
        return nap.ready();
    });
    EXPECT_FALSE(here.next_timer().has_value());
    EXPECT_LT(wakes, 20);
}

std::chrono::nanoseconds cpu_of_process() {
    timespec used{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

TEST_P(engine_loop, an_idle_one_is_woken_by_nobody) {
    loop_thread server(GetParam());
    loop_thread client(GetParam());
    server.here().define("hello", [] {});
    auto hello = client.here().procedure<void()>("hello").on(server.here().address());
    for (int i = 0; i < 100; ++i)
        hello();
    // Measures 200 ms by a timer of another engine.
    engine watch{"shm://"};
    const auto idle = [&] {
        const int before = client.wakes() + server.wakes();
        const auto cpu = cpu_of_process();
        watch.run([] { this_task::sleep_for(200ms); });
        EXPECT_LT(cpu_of_process() - cpu, 50ms);
        return client.wakes() + server.wakes() - before;
    };
    EXPECT_LT(idle(), 50);
}

TEST_P(engine_loop, its_handlers_may_run_on_streams_with_threads) {
    loop_thread server(GetParam(), {.streams = {{}, {.name = "work"}}, .handlers = "work"});
    loop_thread client(GetParam());
    server.here().define("where", [] { return std::string(execution_stream::current()->name()); });
    server.here().define("inline", [] { return std::string(execution_stream::current()->name()); },
                         {.run = handler::inline_});
    const auto ask = [&](const char* name) {
        return client.here().procedure<std::string()>(name).on(server.here().address())();
    };
    for (int i = 0; i < 50; ++i) {
        EXPECT_EQ(ask("where"), "work");
        EXPECT_EQ(ask("inline"), "amalgam");
    }
}

// Small messages that tcp keeps back to send them together, too.
TEST(event_loop, what_its_units_post_leaves_in_the_same_progress) {
    for (const std::string uri : {"tcp://127.0.0.1:0", "shm://"}) {
        engine server(uri, {.progress = by_caller}), client(uri, {.progress = by_caller});
        int came = 0;
        server.define("count", [&came](int) { ++came; });
        const auto count = client.procedure<void(int)>("count").on(server.address());
        count.post(0);
        while (came == 0) {
            client.progress();
            server.progress();
        }
        constexpr int posts = 5;
        for (int round = 1; round <= 20; ++round) {
            const future<void> posted = client.spawn([&] {
                for (int i = 0; i < posts; ++i)
                    count.post(i);
            });
            client.progress();
            ASSERT_TRUE(posted.ready());
            while (came < 1 + round * posts)
                server.progress();
        }
    }
}

}  // namespace
}  // namespace amalgam
