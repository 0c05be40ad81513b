#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/counter.hpp>

namespace amalgam {
namespace {

using values = std::vector<counter_value>;

TEST(counter, threads_lose_no_increment) {
    counter_set set;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
            counter& c = set.get("calls");
            for (int i = 0; i < 10'000; ++i)
                c.add();
        });
    }
    for (auto& one : threads)
        one.join();
    EXPECT_EQ(set.get("calls").value(), 40'000u);
}

TEST(counter_set, one_name_is_one_counter) {
    counter_set set;
    set.get("a").add(3);
    counter& again = set.get("a");
    for (int i = 0; i < 100; ++i)
        set.get("x" + std::to_string(i));
    again.subtract();
    EXPECT_EQ(set.get("a").value(), 2u);
}

TEST(counter_set, snapshot_is_sorted_and_reads_exposed_numbers) {
    counter_set set;
    owned_counter sent;
    sent.add(5);
    auto watch = set.expose("b.sent", [&] { return sent.value(); });
    set.get("c").add(1);
    set.get("a").add(2);
    EXPECT_EQ(set.snapshot(), (values{{"a", 2}, {"b.sent", 5}, {"c", 1}}));
    sent.subtract(2);
    EXPECT_EQ(set.snapshot()[1].value, 3u);
}

TEST(counter_set, numbers_of_one_name_add_up) {
    counter_set set;
    auto one = set.expose("sent", [] { return 1u; });
    auto two = set.expose("sent", [] { return 2u; });
    set.get("sent").add(4);
    EXPECT_EQ(set.snapshot(), (values{{"sent", 7}}));
}

TEST(counter_set, ended_watch_is_gone) {
    counter_set set;
    auto kept = set.expose("kept", [] { return 1u; });
    {
        auto gone = set.expose("gone", [] { return 1u; });
    }
    auto replaced = set.expose("replaced", [] { return 1u; });
    replaced = set.expose("new", [] { return 1u; });
    EXPECT_EQ(set.snapshot(), (values{{"kept", 1}, {"new", 1}}));
}

TEST(counter_set, watch_may_outlive_the_set) {
    auto set = std::make_unique<counter_set>();
    auto watch = set->expose("a", [] { return 1u; });
    set.reset();
    watch.reset();
}

TEST(counter_set, a_watch_that_has_ended_is_not_being_read_any_more) {
    for (int round = 0; round < 10; ++round) {
        counter_set set;
        std::atomic<bool> reads{false}, ends{false}, has_read{false};
        auto watch = set.expose("a", [&] {
            reads = true;
            while (!ends)
                std::this_thread::yield();
            for (int i = 0; i < 5; ++i)  // Time for a reset that does not wait.
                std::this_thread::yield();
            has_read = true;
            return 1u;
        });
        std::thread looks([&] { EXPECT_EQ(set.snapshot().size(), 1u); });
        while (!reads)
            std::this_thread::yield();
        ends = true;
        watch.reset();
        EXPECT_TRUE(has_read);
        looks.join();
        EXPECT_TRUE(set.snapshot().empty());
    }
}

TEST(counter_set, captures_of_a_watch_may_call_the_set_when_they_end) {
    counter_set set;
    struct caller {
        counter_set& set;
        ~caller() { set.get("ended").add(); }
    };
    auto watch = set.expose("a", [held = std::make_shared<caller>(caller{set})] { return 1u; });
    std::uint64_t before = set.get("ended").value();
    watch.reset();
    EXPECT_EQ(set.get("ended").value(), before + 1);
}

TEST(counter_set, renders_as_text_and_json) {
    values some{{"a", 1}, {"quote\"", 18446744073709551615u}};
    EXPECT_EQ(to_text(some), "a 1\nquote\" 18446744073709551615\n");
    EXPECT_EQ(to_json(some), "{\"a\": 1, \"quote\\\"\": 18446744073709551615}");
    EXPECT_EQ(to_json({}), "{}");
}

static_assert(sizeof(counter) == 64, "counters of different threads share no cache line");
static_assert(sizeof(owned_counter) == 8);

}  // namespace
}  // namespace amalgam
