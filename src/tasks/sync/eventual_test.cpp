#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/and_gate.hpp>
#include <amalgam/tasks/eventual.hpp>
#include <amalgam/tasks/once.hpp>

#include "tasks/streams/stream_testing.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;
using eventual_in_turn = driven_stream_test;
using and_gate_in_turn = driven_stream_test;
using once_in_turn = driven_stream_test;

TEST(eventual, everybody_reads_the_one_value) {
    execution_stream left, right;
    eventual<std::string> answer;
    std::atomic<const std::string*> at = nullptr;
    std::vector<ult> readers;
    for (int i = 0; i < 5; ++i) {
        for (execution_stream* each : {&left, &right}) {
            readers.push_back(spawn(*each, [&] {
                const std::string& text = answer.wait();
                EXPECT_EQ(text, "aaa");
                at = &text;
            }));
        }
    }
    answer.set(3u, 'a');
    readers.clear();
    EXPECT_EQ(at, &answer.wait());
}

detached_coroutine read_eventual(eventual<std::unique_ptr<int>>& answer, std::string& seen) {
    seen += std::to_string(*co_await answer.start_wait());
}

TEST_F(eventual_in_turn, is_set_once_and_again_after_reset) {
    eventual<std::unique_ptr<int>> answer;
    EXPECT_FALSE(answer.ready());
    run([&] { seen += answer.wait_for(10ms) ? "set" : "late"; });
    run([&] { read_eventual(answer, seen); });
    advance(10ms);
    EXPECT_EQ(news(), "late");
    answer.set(std::make_unique<int>(1));
    EXPECT_THROW(answer.set(nullptr), error);
    run();
    EXPECT_EQ(news(), "1");
    answer.reset();
    EXPECT_FALSE(answer.ready());
    answer.set(std::make_unique<int>(2));
    EXPECT_EQ(*answer.wait(), 2);
    EXPECT_TRUE(answer.wait_for(0ms));
}

TEST_F(eventual_in_turn, a_value_that_cannot_be_made_leaves_it_unset) {
    struct fails {
        explicit fails(bool now) {
            if (now) throw std::runtime_error("no value");
        }
    };
    eventual<fails> answer;
    EXPECT_THROW(answer.set(true), std::runtime_error);
    EXPECT_FALSE(answer.ready());
    answer.set(false);
    EXPECT_TRUE(answer.ready());
}

TEST_F(eventual_in_turn, of_void_tells_that_it_happened) {
    eventual<void> happened;
    run([&] {
        happened.wait();
        seen += "done";
    });
    post_tasklet(stream, [&] { happened.set(); });
    run();
    EXPECT_EQ(news(), "done");
    EXPECT_THROW(happened.set(), error);
}

TEST(eventual, may_die_as_soon_as_wait_returned) {
    execution_stream stream;
    for (int i = 0; i < 3000; ++i) {
        auto answer = std::make_unique<eventual<int>>();
        post(stream, [at = answer.get(), i] { at->set(i); });
        ASSERT_EQ(answer->wait(), i);
    }
}

detached_coroutine read_gate(and_gate<int>& gate, std::string& seen) {
    for (const int each : co_await gate.start_wait())
        seen += std::to_string(each);
}

TEST_F(and_gate_in_turn, opens_with_the_last_value_after_its_callback_ran) {
    and_gate<int> gate(3, [&](std::span<int> all) {
        seen += "all: ";
        all[0] = 9;
    });
    run([&] {
        for (const int each : gate.wait())
            seen += std::to_string(each);
        seen += ' ';
    });
    run([&] { read_gate(gate, seen); });
    gate.set(1);
    gate.set(2);
    run();
    EXPECT_EQ(news(), "");
    EXPECT_FALSE(gate.wait_for(0ms));
    gate.set(3);
    EXPECT_TRUE(gate.ready());
    run();
    EXPECT_EQ(news(), "all: 923 923");
    EXPECT_THROW(gate.set(4), error);
    gate.reset();
    EXPECT_FALSE(gate.ready());
    for (int each : {4, 5, 6})
        gate.set(each);
    EXPECT_EQ(gate.wait()[2], 6);
}

TEST_F(and_gate_in_turn, a_callback_that_throws_tells_the_last_setter_and_the_gate_opens) {
    and_gate<int> gate(1, [](std::span<int>) { throw std::runtime_error("no"); });
    EXPECT_THROW(gate.set(1), std::runtime_error);
    EXPECT_EQ(gate.wait()[0], 1);
    EXPECT_TRUE(and_gate<int>(0).wait().empty());
}

TEST(and_gate, gathers_from_streams_and_may_die_as_soon_as_wait_returned) {
    execution_stream left, right;
    for (int i = 0; i < 2000; ++i) {
        auto gate = std::make_unique<and_gate<int>>(4);
        for (execution_stream* each : {&left, &right}) {
            for (int value : {1, 2})
                post(*each, [at = gate.get(), value] { at->set(value); });
        }
        int sum = 0;
        for (const int each : gate->wait())
            sum += each;
        ASSERT_EQ(sum, 6);
    }
}

TEST_F(once_in_turn, others_wait_until_it_is_done) {
    once_flag flag;
    for (char name : {'a', 'b', 'c'}) {
        run([&, name] {
            call_once(
                flag,
                [&](char who) {
                    seen += who;
                    this_task::sleep_for(10ms);
                    seen += '!';
                },
                name);
            seen += name;
        });
    }
    EXPECT_EQ(news(), "a");
    advance(10ms);
    EXPECT_EQ(news(), "!abc");
}

TEST_F(once_in_turn, when_it_throws_the_next_one_tries) {
    once_flag flag;
    int calls = 0;
    const auto attempt = [&](bool fails) {
        call_once(flag, [&] {
            ++calls;
            if (fails) throw std::runtime_error("not now");
        });
    };
    EXPECT_THROW(attempt(true), std::runtime_error);
    attempt(false);
    attempt(true);
    EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace amalgam
