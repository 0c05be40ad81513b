#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/fifo_pool.hpp>
#include <amalgam/tasks/ult.hpp>

#include "tasks/sanitizer.hpp"

namespace amalgam {
namespace {

errc code_of(const std::function<void()>& call) {
    try {
        call();
    } catch (const error& why) {
        return why.code().code;
    }
    return errc::ok;
}

/// One stream that the test's own thread runs: the order of things is exact.
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

TEST_F(ult_on_a_driven_stream, an_exception_of_a_detached_one_harms_nobody) {
    bool ran = false;
    post(stream, [] { throw 7; });
    spawn(stream, [] { throw std::runtime_error("told to the log"); }).detach();
    post(stream, [&] { ran = true; });
    post_tasklet(stream, [] { throw std::runtime_error("told to the log"); });
    EXPECT_EQ(stream.run_ready(), 4u);
    EXPECT_TRUE(ran);
}

TEST_F(ult_on_a_driven_stream, yielding_inside_a_catch_block_keeps_each_ones_exception) {
    std::string seen;
    const auto catching = [&](const char* text) {
        try {
            throw std::runtime_error(text);
        } catch (const std::runtime_error&) {
            this_task::yield();
            try {
                throw;  // the one being handled here, not the neighbour's
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
        // Touches every byte, so that no frame could step over the guard unseen.
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
