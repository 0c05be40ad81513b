#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/bulk/bulk_cache.hpp>
#include <amalgam/bulk/expose.hpp>
#include <amalgam/rpc/metrics.hpp>

#include "bulk/bulk_testing.hpp"
#include "memory/memory.hpp"

namespace amalgam {
namespace {

struct bulk_cache_here : testing::Test {
    engine here{one_more("loop://")};
    bulk_cache cache{here};
};

TEST_F(bulk_cache_here, trim_frees_what_is_idle_and_nothing_else) {
    bulk_buffer kept = cache.take(5000);
    kept.data()[4999] = std::byte{7};
    { const bulk_buffer small = cache.take(10), large = cache.take(70'000); }
    EXPECT_EQ(cache.counts().bytes_idle, 4096u + 131'072u);
    cache.trim();
    EXPECT_EQ(cache.counts().bytes_idle, 0u);
    EXPECT_EQ(cache.counts().bytes_in_use, 8192u);
    EXPECT_EQ(cache.counts().released, 2u);
    EXPECT_EQ(kept.descriptor().pull_all()[4999], std::byte{7});
    { const bulk_buffer again = cache.take(10); }
    EXPECT_EQ(cache.counts().reused, 0u);
    cache.trim();
    cache.trim();
    EXPECT_EQ(cache.counts().released, 3u);
}

TEST_F(bulk_cache_here, is_among_the_numbers_of_its_engine_and_adds_up_with_others) {
    bulk_cache other(here);
    const bulk_buffer kept = cache.take(5000), more = other.take(5000);
    { const bulk_buffer idle = other.take(10); }
    const metric_snapshot all = metrics_of(here).snapshot();
    EXPECT_EQ(all.value("amalgam_bulk_cache_taken_total"), 3);
    EXPECT_EQ(all.value("amalgam_bulk_cache_reused_total"), 0);
    EXPECT_EQ(all.value("amalgam_bulk_cache_used_bytes"), 2 * 8192);
    EXPECT_EQ(all.value("amalgam_bulk_cache_idle_bytes"), 4096);
}

TEST_F(bulk_cache_here, after_the_end_of_its_engine_nothing_new_is_taken) {
    const bulk_buffer before = cache.take(5000);
    here.stop();
    EXPECT_EQ(error_of([&] { (void)cache.take(100'000); }).code(), errc::closed);
    EXPECT_FALSE(cache.try_take(100'000));
    EXPECT_EQ(before.size(), 5000u);
}

TEST_F(bulk_cache_here, a_buffer_that_is_taken_again_takes_no_memory) {
    const auto round = [&] {
        for (const std::size_t bytes : {1u, 4096u, 5000u, 70'000u})
            const bulk_buffer one = cache.take(bytes);
        const bulk_buffer held = cache.try_take(10);
        return held.size();
    };
    EXPECT_EQ(round(), 10u);
    const std::uint64_t before = memory::allocations();
    for (int i = 0; i < 100; ++i)
        round();
    EXPECT_EQ(memory::allocations(), before);
    EXPECT_EQ(cache.counts().reused, 5 * 100u + 2);
}

}  // namespace
}  // namespace amalgam
