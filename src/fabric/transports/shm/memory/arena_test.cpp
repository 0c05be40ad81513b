#include "fabric/transports/shm/memory/arena.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>

namespace amalgam::detail {
namespace {

TEST(shm_arena, gives_out_all_of_itself_and_no_more) {
    shm_arena arena = shm_arena::make(4 * shm_page_bytes).value();
    const auto first = arena.cut(3 * shm_page_bytes);
    ASSERT_TRUE(first);
    EXPECT_FALSE(arena.cut(2 * shm_page_bytes));
    const auto second = arena.cut(shm_page_bytes);
    ASSERT_TRUE(second);
    EXPECT_FALSE(arena.cut(shm_page_bytes));
    arena.give_back(*first);
    EXPECT_FALSE(arena.is_whole());
    arena.give_back(*second);
    EXPECT_TRUE(arena.is_whole());
    EXPECT_TRUE(arena.cut(4 * shm_page_bytes)) << "what touches is one gap again";
}

TEST(shm_arena, cuts_never_overlap_are_zeroed_and_join_again_in_any_order) {
    constexpr std::size_t pages = 64;
    shm_arena arena = shm_arena::make(pages * shm_page_bytes).value();
    seeded_random dice(7);
    std::vector<mutable_bytes> held;
    std::vector<bool> used(pages);
    const auto mark = [&](mutable_bytes cut, bool now) {
        const auto from = static_cast<std::size_t>(cut.data() - arena.start()) / shm_page_bytes;
        for (std::size_t i = from; i < from + cut.size() / shm_page_bytes; ++i) {
            ASSERT_NE(used[i], now);
            used[i] = now;
        }
    };
    for (int i = 0; i < 2000; ++i) {
        if (!held.empty() && dice.chance(0.5)) {
            const std::size_t which = dice.below(held.size());
            mark(held[which], false);
            arena.give_back(held[which]);
            held[which] = held.back();
            held.pop_back();
            continue;
        }
        const std::size_t want = 1 + dice.below(9);
        const auto cut = arena.cut(want * shm_page_bytes);
        if (!cut) {
            // No gap is that long.
            std::size_t run = 0;
            for (bool one : used) {
                run = one ? 0 : run + 1;
                ASSERT_LT(run, want);
            }
            continue;
        }
        ASSERT_EQ(cut->size(), want * shm_page_bytes);
        ASSERT_TRUE(arena.holds(*cut));
        mark(*cut, true);
        for (std::size_t at = 0; at < cut->size(); at += shm_page_bytes)
            ASSERT_EQ((*cut)[at], std::byte{0});
        std::memset(cut->data(), 1, cut->size());
        held.push_back(*cut);
    }
    for (mutable_bytes cut : held)
        arena.give_back(cut);
    EXPECT_TRUE(arena.is_whole());
    EXPECT_TRUE(arena.cut(pages * shm_page_bytes));
}

TEST(shm_arena, holds_what_lies_within_it) {
    shm_arena arena = shm_arena::make(2 * shm_page_bytes).value();
    EXPECT_TRUE(arena.holds({arena.start(), 2 * shm_page_bytes}));
    EXPECT_FALSE(arena.holds({arena.start(), 2 * shm_page_bytes + 1}));
    EXPECT_FALSE(arena.holds({arena.start() - 1, 1}));
    EXPECT_TRUE(arena.holds({arena.start() + 2 * shm_page_bytes, 0}));
}

}  // namespace
}  // namespace amalgam::detail
