#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include <amalgam/rpc/engine.hpp>
#include <amalgam/tasks/ult.hpp>

#include "thrown.hpp"

// What a turn of a user's event loop does, and who else may have the engine meanwhile.
namespace amalgam {
namespace {

using namespace std::chrono_literals;

constexpr progress_options turned_by_caller{.by = progress_by::caller};

class engine_turns : public testing::TestWithParam<const char*> {
protected:
    /// One turn of a server that always has a message of its client to take.
    void turn_under_load() {
        for (int i = 0; i < 4; ++i)
            count_.post(i);
        client_.progress();
        server_.progress();
    }

    int came_ = 0;
    engine server_{GetParam(), {.progress = turned_by_caller}};
    engine client_{GetParam(), {.progress = turned_by_caller}};
    const bool defined_ = (server_.define("count", [this](int) { ++came_; }), true);
    const bound_procedure<void(int)> count_ =
        client_.procedure<void(int)>("count").on(server_.address());
};
INSTANTIATE_TEST_SUITE_P(shm, engine_turns, testing::Values("shm://"));
INSTANTIATE_TEST_SUITE_P(tcp, engine_turns, testing::Values("tcp://127.0.0.1:0"));

TEST_P(engine_turns, messages_keep_neither_other_threads_nor_timers_waiting) {
    for (int i = 0; i < 50; ++i) {
        turn_under_load();
        std::atomic<bool> ran{false};
        future<void> posted;
        std::thread([&] { posted = server_.spawn([&] { ran = true; }); }).join();
        turn_under_load();
        EXPECT_TRUE(ran) << "what another thread gave it runs in the next turn";
        const future<void> nap = server_.spawn([] { this_task::sleep_for(1us); });
        turn_under_load();
        const auto due = server_.next_timer();  // None: it has fired already.
        while (due && *due > server_.now())
            continue;
        turn_under_load();
        turn_under_load();
        EXPECT_TRUE(nap.ready()) << "a timer that is due fires in one of the next two turns";
    }
    EXPECT_GT(came_, 0);
}

TEST_P(engine_turns, another_peer_is_served_beside_one_that_sends_all_the_time) {
    engine other{GetParam(), {.progress = turned_by_caller}};
    server_.define("next", [](std::uint64_t n) { return n + 1; });
    const auto next = other.procedure<std::uint64_t(std::uint64_t)>("next").on(server_.address());
    for (std::uint64_t i = 0; i < 100; ++i) {
        future<std::uint64_t> answer = next.start(i);
        while (!answer.ready()) {
            turn_under_load();
            other.progress();
        }
        EXPECT_EQ(answer.get(), i + 1);
    }
}

TEST_P(engine_turns, another_thread_stops_it_while_its_loop_polls) {
    for (int i = 0; i < 20; ++i) {
        engine here{GetParam(), {.progress = turned_by_caller, .drain = 1ms}};
        std::atomic<bool> polls{false}, stopped{false};
        std::thread loop([&] {
            while (!stopped) {
                here.progress();
                polls = true;
            }
        });
        while (!polls)
            std::this_thread::yield();
        here.stop();
        EXPECT_TRUE(here.stopped());
        stopped = true;
        loop.join();
        EXPECT_EQ(here.progress(), 0u);
    }
}

TEST_P(engine_turns, two_threads_may_poll_it_and_each_call_is_served_once) {
    std::atomic<bool> done{false};
    int served = 0;  // Not atomic: handlers run in one turn at a time.
    server_.define("once", [&served] { return ++served; });
    std::thread loops[2];
    for (std::thread& each : loops) {
        each = std::thread([&] {
            while (!done)
                server_.progress();
        });
    }
    const auto once = client_.procedure<int()>("once").on(server_.address());
    for (int i = 1; i <= 300; ++i) {
        future<int> answer = once.start();
        while (!answer.ready())
            client_.progress();
        EXPECT_EQ(answer.get(), i);
    }
    done = true;
    for (std::thread& each : loops)
        each.join();
}

/// A handler of one engine drives another, whose handler does something to the first.
class engine_below : public testing::TestWithParam<const char*> {
protected:
    template <typename Function>
    void inside(Function what) {
        other_.define("inner", [&] {
            what();
            done_ = true;
        });
        outer_->define("outer", [this] {
            other_.procedure<void()>("inner").on(other_.address()).post();
            while (!done_)
                other_.progress();
        });
        future<void> call = outer_->procedure<void()>("outer").on(outer_->address()).start();
        while (outer_ && !call.ready())
            outer_->progress();
        EXPECT_TRUE(done_);
    }

    bool done_ = false;
    engine other_{GetParam(), {.progress = turned_by_caller}};
    std::unique_ptr<engine> outer_ =
        std::make_unique<engine>(GetParam(), engine_options{.progress = turned_by_caller});
};
INSTANTIATE_TEST_SUITE_P(shm, engine_below, testing::Values("shm://"));
INSTANTIATE_TEST_SUITE_P(tcp, engine_below, testing::Values("tcp://127.0.0.1:0"));

TEST_P(engine_below, is_not_driven_within_itself) {
    inside([this] {
        const error why = error_of([this] { outer_->progress(); });
        EXPECT_EQ(why.code(), errc::invalid);
        EXPECT_TRUE(std::string(why.what()).starts_with("progress() must not be called"))
            << why.what();
    });
}

TEST_P(engine_below, is_stopped_at_once) {
    inside([this] {
        outer_->stop();
        EXPECT_TRUE(outer_->stopped());
    });
}

TEST_P(engine_below, is_destroyed_and_its_handler_goes_on) {
    inside([this] { outer_.reset(); });
}

TEST_P(engine_below, is_destroyed_by_its_own_handler_where_nothing_may_wait) {
    auto inner = std::make_unique<engine>(GetParam(), engine_options{.progress = turned_by_caller});
    inner->define("end", [&inner] { inner.reset(); });
    outer_->define("outer",
                   [&] {
                       inner->procedure<void()>("end").on(inner->address()).post();
                       while (inner)
                           inner->progress();
                   },
                   {.run = handler::inline_});
    const future<void> call = outer_->procedure<void()>("outer").on(outer_->address()).start();
    while (!call.ready())
        outer_->progress();
    EXPECT_EQ(inner, nullptr);
}

}  // namespace
}  // namespace amalgam
