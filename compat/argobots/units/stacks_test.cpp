#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include <amalgam/tasks/ult.hpp>

#include "abt_testing.hpp"

// Call stacks, printed while others run.
namespace amalgam::argobots_testing {
namespace {

std::string stacks_in(ABT_pool pool) {
    char* text = nullptr;
    size_t bytes = 0;
    FILE* const to = ::open_memstream(&text, &bytes);
    EXPECT_EQ(ABT_info_print_thread_stacks_in_pool(to, pool), ABT_SUCCESS);
    std::fclose(to);
    const std::string all(text, bytes);
    std::free(text);
    return all;
}

// The stream that a ULT is leaving waits for the pool, and who looks at the ULT for that stream.
TEST(argobots_stacks, of_a_pool_are_printed_while_two_streams_use_it) {
    for (const ABT_pool_access access : {ABT_POOL_ACCESS_MPMC, ABT_POOL_ACCESS_PRIV}) {
        const program here;
        const yielding_ults yielding(20, access);
        for (int round = 0; round < 200; ++round)
            EXPECT_NE(stacks_in(yielding.pool).find("ULTs in pool"), std::string::npos);
    }
}

TEST(argobots_stacks, of_a_pool_are_those_of_its_ults_that_have_begun) {
    const program here;
    ABT_thread both[2] = {};
    ASSERT_EQ(ABT_thread_create(
                  here.pool, [](void*) { ABT_thread_yield(); }, nullptr, nullptr, &both[0]),
              ABT_SUCCESS);
    EXPECT_EQ(stacks_in(here.pool).find("    0x"), std::string::npos);
    ABT_thread_yield();
    ASSERT_EQ(ABT_thread_create(
                  here.pool, [](void*) {}, nullptr, nullptr, &both[1]),
              ABT_SUCCESS);
    const std::string all = stacks_in(here.pool);
    const std::size_t first = all.find("ULT ", all.find('\n'));
    const std::size_t second = all.find("ULT ", first + 1);
    ASSERT_NE(second, std::string::npos) << all;
#if defined(__x86_64__) || defined(__aarch64__)
    EXPECT_LT(all.find("    0x", first), second) << all;
#endif
    EXPECT_EQ(all.find("    0x", second), std::string::npos) << all;
    for (ABT_thread& each : both)
        ASSERT_EQ(ABT_thread_free(&each), ABT_SUCCESS);
}

/// A request to print all, and how far it is.
struct request {
    FILE* to = std::fopen("/dev/null", "w");
    std::atomic<bool> begins_to_tell{false};
    std::atomic<int> told{0};

    request() = default;
    ~request() { std::fclose(to); }
    request(const request&) = delete;
    request& operator=(const request&) = delete;

    void ask() {
        EXPECT_EQ(ABT_info_trigger_print_all_thread_stacks(to, -1, &tell, this), ABT_SUCCESS);
    }
    static void tell(ABT_bool, void* which) {
        auto& mine = *static_cast<request*>(which);
        mine.begins_to_tell = true;
        this_task::sleep_for(std::chrono::milliseconds(2));
        ++mine.told;
    }
};

TEST(argobots_stacks, of_all_that_were_asked_for_are_told_before_the_end) {
    logged_lines lines;
    for (const bool is_begun : {false, true}) {
        request one;
        {
            const program here;
            one.ask();
            while (is_begun && !one.begins_to_tell)
                ABT_thread_yield();
        }
        EXPECT_EQ(one.told, 1) << is_begun;
    }
    EXPECT_FALSE(lines.have("a pool was destroyed"));
}

TEST(argobots_stacks, may_be_asked_for_again_and_again_by_who_is_told_of_them_until_the_end) {
    struct asks_again {
        FILE* to;
        std::atomic<int> told{0};
        static void tell(ABT_bool, void* which) {
            auto& mine = *static_cast<asks_again*>(which);
            ++mine.told;
            ABT_info_trigger_print_all_thread_stacks(mine.to, -1, &tell, which);
        }
    };
    const request out;
    asks_again all{out.to};
    {
        const program here;
        asks_again::tell(ABT_FALSE, &all);
        while (all.told < 10)
            ABT_thread_yield();
    }
    EXPECT_GE(all.told, 10);
}

TEST(argobots_stacks, are_printed_though_who_is_told_of_them_throws) {
    logged_lines lines;
    const request out;
    std::atomic<int> told{0};
    for (const bool is_begun : {false, true}) {
        const program here;
        told = 0;
        ASSERT_EQ(ABT_info_trigger_print_all_thread_stacks(
                      out.to, -1,
                      [](ABT_bool, void* count) {
                          ++*static_cast<std::atomic<int>*>(count);
                          throw 5;
                      },
                      &told),
                  ABT_SUCCESS);
        while (is_begun && told == 0)
            ABT_thread_yield();
    }
    EXPECT_EQ(lines.number_of("told of printed stacks"), 2u);
}

}  // namespace
}  // namespace amalgam::argobots_testing
