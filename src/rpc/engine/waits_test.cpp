#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include <amalgam/rpc/engine.hpp>
#include <amalgam/tasks/event.hpp>

#include "rpc/loop_pair.hpp"

// Waits on an engine's streams when these end.
namespace amalgam {
namespace {

using namespace std::chrono_literals;

/// Held on the stack of a wait.
struct held_thing {
    std::shared_ptr<int> thing = std::make_shared<int>(1);
    std::weak_ptr<int> seen = thing;
    std::atomic<bool> waits{false};

    auto held_in(std::function<void()> wait) {
        return [this, wait] {
            const std::shared_ptr<int> mine = std::move(thing);
            waits = true;
            wait();
        };
    }
    void await_the_wait() const {
        while (!waits)
            std::this_thread::yield();
    }
};

struct waiting_place {
    const char* name;
    procedure_options options;
};

class engine_waits : public testing::TestWithParam<waiting_place> {
protected:
    engine_options options{.streams = 2, .drain = 1ms};
    engine client{"shm://"};

    engine_waits() {
        options.pools = {{.name = "other"}};
        options.streams.each.push_back({});
        options.streams.each.push_back({.pools = {"other"}});
    }
    /// A handler is in `wait()` when its engine ends.
    void expect_unwound(std::function<void()> wait) {
        auto server = std::make_unique<engine>("shm://", options);
        held_thing held;
        server->define("wait", held.held_in(wait), GetParam().options);
        auto call = client.procedure<void()>("wait").on(server->address()).start();
        held.await_the_wait();
        server.reset();
        EXPECT_TRUE(held.seen.expired());
        EXPECT_FALSE(call.wait().ok());
    }
};

TEST_P(engine_waits, a_handler_that_waits_when_its_engine_ends_is_canceled) {
    event never;
    expect_unwound([&] { never.wait(); });
    expect_unwound([] { this_task::sleep_for(1h); });
    promise<int> unkept;
    auto later = unkept.get_future();
    expect_unwound([&] { (void)later.get(); });
}

TEST_P(engine_waits, a_handler_that_catches_what_ends_its_wait_goes_on) {
    std::atomic<errc> told{errc::ok};
    expect_unwound([&] {
        try {
            this_task::sleep_for(1h);
        } catch (const error& why) {
            told = why.code().code;
        }
        this_task::yield();
    });
    EXPECT_EQ(told, errc::canceled);
}

INSTANTIATE_TEST_SUITE_P(places, engine_waits,
                         testing::Values(waiting_place{"where_handlers_run", {}},
                                         waiting_place{"in_a_pool", {.in_pool = "other"}},
                                         waiting_place{"on_its_own_streams", {.streams = 1}}),
                         [](const auto& which) { return std::string(which.param.name); });

TEST(engine_waits_for, what_run_and_spawn_began_ends_as_canceled) {
    auto one = std::make_unique<engine>("shm://", engine_options{.drain = 1ms});
    held_thing spawned, run;
    event never;
    auto later = one->spawn(spawned.held_in([&] { never.wait(); }));
    std::atomic<errc> told{errc::ok};
    std::thread waits([&, runs = one.get()] {
        told = error_of([&] { runs->run(run.held_in([&] { never.wait(); })); }).code().code;
    });
    spawned.await_the_wait();
    run.await_the_wait();
    one->stop();
    waits.join();
    EXPECT_EQ(told, errc::canceled);
    EXPECT_EQ(later.wait(), errc::canceled);
    EXPECT_TRUE(spawned.seen.expired() && run.seen.expired());
}

TEST(engine_waits_for, a_producer_whose_values_nobody_reads_ends_in_a_pool_of_the_users_too) {
    execution_stream mine;
    engine server("shm://", {.drain = 1ms}), client("shm://");
    std::weak_ptr<int> seen[2];
    const auto define = [&](const char* name, std::weak_ptr<int>& into, procedure_options how) {
        server.define(
            name,
            [&into](stream_writer<int>& out) {
                const auto held = std::make_shared<int>(1);
                into = held;
                for (;;)
                    out(*held);
            },
            how);
    };
    define("here", seen[0], {});
    define("there", seen[1], {.in = &mine.main_pool()});
    const peer there = client.lookup(server.address());
    auto first = client.procedure<streamed<int>()>("here").on(there).window(1)();
    auto second = client.procedure<streamed<int>()>("there").on(there).window(1)();
    EXPECT_EQ(first.next(), 1);
    EXPECT_EQ(second.next(), 1);
    server.stop();
    EXPECT_TRUE(seen[0].expired());
    while (!seen[1].expired())
        std::this_thread::yield();
}

TEST(engine_waits_for, the_end_of_another_engine_that_its_handler_brings_about_comes_first) {
    auto first = std::make_unique<engine>("shm://", engine_options{.drain = 20s});
    std::optional<engine> second(std::in_place, "shm://", engine_options{.drain = 20s});
    engine client("shm://");
    held_thing held;
    std::atomic<bool> goes_on{false};
    std::atomic<bool> runs{false}, ended{false};
    second->define("long", [&] {
        runs = true;
        while (!goes_on)
            this_task::yield();
    });
    auto under_way = client.procedure<void()>("long").on(second->address()).start();
    while (!runs)
        std::this_thread::yield();
    first->define("end", held.held_in([&, one = first.get()] {
        one->stop();  // The rest of its stop waits for none of its own handlers.
        second->stop();
        ended = true;
    }));
    auto ending = client.procedure<void()>("end").on(first->address()).start();
    const peer there = client.lookup(second->address());
    while (client.procedure<void()>("none").on(there).try_call().code() != errc::unavailable)
        std::this_thread::yield();
    std::thread later([&] {
        std::this_thread::sleep_for(20ms);  // Most likely, the end of `first` is waiting by now.
        goes_on = true;
    });
    first.reset();
    EXPECT_TRUE(held.seen.expired());
    EXPECT_TRUE(ended);
    later.join();
    EXPECT_FALSE(ending.wait().ok());
}

}  // namespace
}  // namespace amalgam
