#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/log.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/fifo_pool.hpp>
#include <amalgam/tasks/scheduler.hpp>
#include <amalgam/tasks/shared_pools.hpp>
#include <amalgam/tasks/tasklet.hpp>
#include <amalgam/tasks/ult.hpp>

#include "tasks/stacks/sanitizer.hpp"
#include "thrown.hpp"

namespace amalgam {
namespace {

/// One stream run by the test's own thread: the order of events is exact.
struct driven : testing::Test {
    execution_stream stream{execution_stream_options{.driven = true}};
};
using ult_on_a_driven_stream = driven;

TEST_F(ult_on_a_driven_stream, runs_in_the_order_of_spawning) {
    std::string order;
    for (char c : {'a', 'b', 'c'})
        post(stream, [&order, c] { order += c; });
    EXPECT_EQ(order, "");
    EXPECT_EQ(stream.run_ready(), 3u);
    EXPECT_EQ(order, "abc");
}

TEST_F(ult_on_a_driven_stream, yield_lets_every_other_one_run_first) {
    std::string order;
    for (char c : {'a', 'b', 'c'}) {
        post(stream, [&order, c] {
            for (int i = 0; i < 3; ++i) {
                order += c;
                this_task::yield();
            }
        });
    }
    stream.run_ready();
    EXPECT_EQ(order, "abcabcabc");
}

TEST_F(ult_on_a_driven_stream, tasklets_and_ults_keep_their_common_order) {
    std::string order;
    post(stream, [&] {
        order += '1';
        this_task::yield();
        order += '4';
    });
    post_tasklet(stream, [&] { order += '2'; });
    post(stream, [&] { order += '3'; });
    stream.run_ready();
    EXPECT_EQ(order, "1234");
}

TEST_F(ult_on_a_driven_stream, join_from_a_ult_waits_for_the_end) {
    std::string order;
    post(stream, [&] {
        ult child = spawn(stream, [&] {
            order += "child ";
            this_task::yield();
            order += "ends ";
        });
        child.join();
        order += "joined";
        EXPECT_FALSE(child.joinable());
    });
    stream.run_ready();
    EXPECT_EQ(order, "child ends joined");
}

TEST_F(ult_on_a_driven_stream, run_ready_does_no_more_than_asked) {
    int ran = 0;
    for (int i = 0; i < 100; ++i)
        post(stream, [&] { ++ran; });
    EXPECT_EQ(stream.run_ready(40), 40u);
    EXPECT_EQ(ran, 40);
    EXPECT_EQ(stream.run_ready(), 60u);
}

TEST_F(ult_on_a_driven_stream, an_exception_comes_out_of_join) {
    std::string text;
    ult failing = spawn(stream, [] { throw std::runtime_error("broken"); });
    stream.run_ready();
    try {
        failing.join();
    } catch (const std::runtime_error& what) {
        text = what.what();
    }
    EXPECT_EQ(text, "broken");
    EXPECT_FALSE(failing.joinable());
}

struct exception_without_a_text : std::exception {
    const char* what() const noexcept override { return nullptr; }
};

TEST_F(ult_on_a_driven_stream, an_exception_of_a_detached_one_harms_nobody) {
    bool ran = false;
    post(stream, [] { throw 7; });
    post(stream, [] { throw exception_without_a_text(); });
    spawn(stream, [] { throw std::runtime_error("told to the log"); }).detach();
    post(stream, [&] { ran = true; });
    post_tasklet(stream, [] { throw std::runtime_error("told to the log"); });
    EXPECT_EQ(stream.run_ready(), 5u);
    EXPECT_TRUE(ran);
}

TEST_F(ult_on_a_driven_stream, what_nobody_joins_for_is_told_to_the_log_once) {
    std::string told;
    default_logger().set_sink([&](const log_record& line) { told += to_text(line) + '\n'; });
    const auto throws = [](const char* text) { return [text] { throw std::runtime_error(text); }; };
    post(stream, throws("of a posted ULT"));
    spawn(stream, throws("of a detached ULT")).detach();
    post_tasklet(stream, throws("of a posted tasklet"));
    spawn_tasklet(stream, throws("of a detached tasklet")).detach();
    {
        const ult destroyed = spawn(stream, throws("of a destroyed ULT"));
        const tasklet too = spawn_tasklet(stream, throws("of a destroyed tasklet"));
        stream.run_ready();
    }
    ult joined = spawn(stream, throws("of a joined ULT"));
    stream.run_ready();
    EXPECT_THROW(joined.join(), std::runtime_error);
    default_logger().set_sink({});
    for (const char* each :
         {"of a posted ULT", "of a detached ULT", "of a posted tasklet", "of a detached tasklet",
          "of a destroyed ULT", "of a destroyed tasklet"}) {
        const auto at = told.find(each);
        ASSERT_NE(at, std::string::npos) << each << " is not in\n" << told;
        EXPECT_EQ(told.find(each, at + 1), std::string::npos) << told;
    }
    EXPECT_EQ(told.find("of a joined ULT"), std::string::npos) << told;
}

TEST_F(ult_on_a_driven_stream, yielding_inside_a_catch_block_keeps_each_ones_exception) {
    std::string seen;
    const auto catching = [&](const char* text) {
        try {
            throw std::runtime_error(text);
        } catch (const std::runtime_error&) {
            this_task::yield();
            try {
                throw;  // the one being handled here, not another ULT's
            } catch (const std::runtime_error& mine) {
                this_task::yield();
                seen += mine.what();
            }
        }
        EXPECT_EQ(std::current_exception(), nullptr);
    };
    for (const char* text : {"a", "b", "c"})
        post(stream, [&catching, text] { catching(text); });
    stream.run_ready();
    EXPECT_EQ(seen, "abc");
}

TEST_F(ult_on_a_driven_stream, yielding_while_unwinding_keeps_each_ones_count) {
    struct yields_when_destroyed {
        ~yields_when_destroyed() {
            EXPECT_EQ(std::uncaught_exceptions(), 1);
            this_task::yield();
            EXPECT_EQ(std::uncaught_exceptions(), 1);
        }
    };
    post(stream, [] {
        try {
            const yields_when_destroyed guard;
            throw 1;
        } catch (int) {
        }
        EXPECT_EQ(std::uncaught_exceptions(), 0);
    });
    int others = -1;
    post(stream, [&] { others = std::uncaught_exceptions(); });
    stream.run_ready();
    EXPECT_EQ(others, 0);
}

TEST_F(ult_on_a_driven_stream, large_and_aligned_closures_arrive_whole) {
    std::array<char, 4096> large{};
    large.fill('x');
    struct alignas(64) aligned {
        int value = 5;
    } block;
    bool whole = false;
    post(stream, [large, block, &whole] {
        whole = large.back() == 'x' && block.value == 5 &&
                reinterpret_cast<std::uintptr_t>(&block) % 64 == 0;
    });
    stream.run_ready();
    EXPECT_TRUE(whole);
}

TEST_F(ult_on_a_driven_stream, a_closure_is_destroyed_before_join_returns) {
    auto held = std::make_shared<int>(1);
    ult runs = spawn(stream, [copy = held] {});
    EXPECT_EQ(held.use_count(), 2);
    stream.run_ready();
    runs.join();
    EXPECT_EQ(held.use_count(), 1);
}

TEST_F(ult_on_a_driven_stream, a_stack_is_as_large_as_asked) {
    bool done = false;
    post(stream,
         [&] {
             std::array<volatile char, 3 * 1024 * 1024> large;
             for (std::size_t i = 0; i < large.size(); i += 512)
                 large[i] = 1;
             done = true;
         },
         {.name = "large", .stack_bytes = 4 * 1024 * 1024});
    stream.run_ready();
    EXPECT_TRUE(done);
}

TEST_F(ult_on_a_driven_stream, bad_use_is_refused) {
    EXPECT_EQ(code_of([&] { spawn(stream, [] {}, {.stack_bytes = 100}); }), errc::invalid);
    fifo_pool unserved;
    EXPECT_EQ(code_of([&] { post(unserved, [] {}); }), errc::invalid);
    ult empty;
    EXPECT_EQ(code_of([&] { empty.join(); }), errc::invalid);
    EXPECT_EQ(code_of([&] { empty.detach(); }), errc::invalid);

    errc yielded{}, waited{}, joined{};
    ult self;
    post_tasklet(stream, [&] {
        yielded = code_of([] { this_task::yield(); });
        waited = code_of([] { event().wait(); });
    });
    self = spawn(stream, [&] { joined = code_of([&] { self.join(); }); });
    stream.run_ready();
    self.join();
    EXPECT_EQ(yielded, errc::invalid);
    EXPECT_EQ(waited, errc::invalid);
    EXPECT_EQ(joined, errc::invalid);
}

TEST_F(ult_on_a_driven_stream, each_knows_where_it_runs) {
    EXPECT_FALSE(this_task::in_ult());
    EXPECT_EQ(execution_stream::current(), nullptr);
    bool ult_knows = false, tasklet_knows = true;
    execution_stream* current = nullptr;
    post(stream, [&] {
        ult_knows = this_task::in_ult();
        current = execution_stream::current();
    });
    post_tasklet(stream, [&] { tasklet_knows = this_task::in_ult(); });
    stream.run_ready();
    EXPECT_TRUE(ult_knows);
    EXPECT_FALSE(tasklet_knows);
    EXPECT_EQ(current, &stream);
    EXPECT_EQ(execution_stream::current(), nullptr);
}

// Sums with what is stored beside a stack overflowed.
TEST_F(ult_on_a_driven_stream, a_stack_that_no_process_has_room_for_is_refused_with_a_reason) {
    for (const std::size_t bytes : {SIZE_MAX, SIZE_MAX - 4096, SIZE_MAX / 2, SIZE_MAX / 4 + 1}) {
        EXPECT_EQ(code_of([&] { spawn(stream, [] {}, {.stack_bytes = bytes}); }), errc::invalid);
    }
    try {
        spawn(stream, [] {}, {.stack_bytes = SIZE_MAX / 4});
        ADD_FAILURE();
    } catch (const error& why) {
        EXPECT_EQ(why.code().code, errc::no_memory);
        EXPECT_NE(std::string(why.what()).find("cannot allocate a stack of"), std::string::npos)
            << why.what();
    }
    EXPECT_EQ(stream.main_pool().ults(), 0u);
}

TEST(pinned_ult, stays_with_its_stream) {
    shared_fifo_pool shared;
    execution_stream one(std::make_unique<basic_scheduler>(std::vector<pool*>{&shared}));
    execution_stream other;
    const auto spawned = [](pool& where) {
        return code_of([&] { spawn(where, [] {}, {.pinned = true}).join(); });
    };
    EXPECT_EQ(spawned(shared), errc::invalid);
    EXPECT_EQ(spawned(other.main_pool()), errc::ok);

    event go;
    errc self = errc::ok;
    ult stays = spawn(other,
                      [&] {
                          const auto thread = std::this_thread::get_id();
                          self = code_of([&] { this_task::migrate(shared); });
                          go.wait();
                          this_task::yield();
                          this_task::sleep_for(std::chrono::milliseconds(1));
                          EXPECT_EQ(std::this_thread::get_id(), thread);
                      },
                      {.pinned = true});
    EXPECT_EQ(code_of([&] { stays.migrate(shared); }), errc::invalid);
    go.set();
    stays.join();
    EXPECT_EQ(self, errc::invalid);
}

TEST(pinned_ult, leaves_nothing_behind_for_the_next_on_its_stack) {
    execution_stream here, there;
    for (int i = 0; i < 3; ++i) {
        spawn(here, [] {}, {.pinned = true}).join();
        spawn(here, [&] { this_task::migrate(there.main_pool()); }).join();
    }
}

TEST(pinned_ult, is_canceled_as_others_are) {
    execution_stream here;
    event begun, never;
    ult waits = spawn(here,
                      [&] {
                          begun.set();
                          never.wait();
                      },
                      {.pinned = true});
    begun.wait();
    waits.cancel();
    EXPECT_EQ(code_of([&] { waits.join(); }), errc::canceled);
}

TEST(last_error, is_that_of_the_thread_after_a_migration) {
    execution_stream left, right;
    bool right_one = true;
    spawn(right, [] { this_task::set_last_error(7); }).join();
    spawn(left, [&] {
        for (int i = 0; i < 100; ++i) {
            this_task::set_last_error(5);
            this_task::migrate(right.main_pool());
            right_one &= this_task::last_error() == 7;
            this_task::migrate(left.main_pool());
            right_one &= this_task::last_error() == 5;
        }
    }).join();
    EXPECT_TRUE(right_one);
}

TEST(ult, join_from_a_plain_thread_waits_for_the_end) {
    execution_stream stream;
    std::atomic<bool> ended = false;
    ult other = spawn(stream, [&] {
        for (int i = 0; i < 100; ++i)
            this_task::yield();
        ended = true;
    });
    other.join();
    EXPECT_TRUE(ended);
}

TEST(ult, the_destructor_joins) {
    execution_stream stream;
    std::atomic<bool> ended = false;
    {
        ult other = spawn(stream, [&] {
            for (int i = 0; i < 100; ++i)
                this_task::yield();
            ended = true;
        });
    }
    EXPECT_TRUE(ended);
}

TEST(ult, streams_that_spawn_on_each_other_lose_none) {
    execution_stream left, right;
    std::atomic<int> ran = 0;
    const auto storm = [&ran](execution_stream& to) {
        std::vector<ult> made;
        for (int i = 0; i < 2000; ++i) {
            made.push_back(spawn(to, [&ran] { ran.fetch_add(1, std::memory_order_relaxed); }));
            if (i % 7 == 0) made.clear();  // joins
        }
    };
    ult a = spawn(left, [&] { storm(right); });
    ult b = spawn(right, [&] { storm(left); });
    storm(left);
    a.join();
    b.join();
    EXPECT_EQ(ran, 6000);
}

TEST(ult, an_overflown_stack_is_killed_at_its_guard) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    struct overflow {
        // Touches every byte, so that no frame can step over the guard.
        static int down(int depth) {
            volatile char frame[1024];
            std::memset(const_cast<char*>(frame), depth, sizeof frame);
            return depth > 100'000'000 ? 0 : down(depth + 1) + frame[depth % 1024];
        }
    };
    const auto runs_over = [] {
        execution_stream stream(execution_stream_options{.driven = true});
        post(stream, [] { overflow::down(0); });
        stream.run_ready();
    };
    if (detail::sanitized) {
        EXPECT_DEATH(runs_over(), "");  // the sanitizer reports it, and exits its own way
    } else {
        EXPECT_EXIT(runs_over(), testing::KilledBySignal(SIGSEGV), "");
    }
}

}  // namespace
}  // namespace amalgam
