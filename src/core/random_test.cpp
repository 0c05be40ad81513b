#include <algorithm>
#include <array>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/random.hpp>
#include <amalgam/core/unique_fd.hpp>

namespace amalgam {
namespace {

TEST(random, numbers_differ_across_refills_and_threads) {
    std::set<std::uint64_t> seen;
    std::vector<std::uint64_t> theirs(200);
    std::thread([&] { std::generate(theirs.begin(), theirs.end(), random_u64); }).join();
    for (std::uint64_t one : theirs)
        seen.insert(one);
    for (int i = 0; i < 200; ++i)
        seen.insert(random_nonzero_u64());
    EXPECT_EQ(seen.size(), 400u);
    EXPECT_FALSE(seen.contains(0));
}

TEST(random, forked_child_does_not_repeat_its_parent) {
    static_cast<void>(random_u64());  // Leaves numbers in reserve for the child to inherit.
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe(ends.data()), 0);
    unique_fd read_end(ends[0]), write_end(ends[1]);
    pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        std::uint64_t number = random_u64();
        ::_exit(::write(write_end.get(), &number, sizeof number) == sizeof number ? 0 : 1);
    }
    std::uint64_t theirs = 0;
    ASSERT_EQ(::read(read_end.get(), &theirs, sizeof theirs), ssize_t{sizeof theirs});
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    EXPECT_NE(theirs, random_u64());
}

TEST(seeded_random, repeats_for_the_same_seed_only) {
    seeded_random a(1), b(1), c(2);
    for (int i = 0; i < 10; ++i)
        EXPECT_EQ(a(), b());
    EXPECT_NE(a(), c());
}

TEST(seeded_random, below_stays_below_and_reaches_all) {
    seeded_random random(3);
    std::set<std::uint64_t> seen;
    for (int i = 0; i < 1000; ++i)
        seen.insert(random.below(7));
    EXPECT_EQ(seen.size(), 7u);
    EXPECT_EQ(*seen.rbegin(), 6u);
}

TEST(seeded_random, chance_is_never_at_zero_and_always_at_one) {
    seeded_random random(4);
    int hits = 0;
    for (int i = 0; i < 1000; ++i) {
        EXPECT_FALSE(random.chance(0));
        EXPECT_TRUE(random.chance(1));
        hits += random.chance(0.25) ? 1 : 0;
    }
    EXPECT_GT(hits, 180);
    EXPECT_LT(hits, 320);
}

}  // namespace
}  // namespace amalgam
