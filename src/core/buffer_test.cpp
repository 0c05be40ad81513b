#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/buffer.hpp>
#include <amalgam/core/random.hpp>
#include <amalgam/core/status.hpp>

namespace amalgam {
namespace {

TEST(buffer, empty_one_holds_nothing) {
    buffer b;
    EXPECT_EQ(b.data(), nullptr);
    EXPECT_EQ(b.capacity(), 0u);
    EXPECT_TRUE(b.bytes().empty());
}

TEST(buffer, without_a_pool_owns_its_bytes) {
    buffer b = buffer::of(1000);
    ASSERT_EQ(b.size(), 1000u);
    std::memset(b.data(), 7, b.size());
    buffer moved = std::move(b);
    EXPECT_EQ(b.size(), 0u);
    EXPECT_EQ(moved.bytes().back(), std::byte{7});
    moved.resize(10);
    EXPECT_EQ(moved.bytes().size(), 10u);
    EXPECT_EQ(moved.capacity(), 1000u);
}

TEST(buffer, impossible_size_is_no_memory) {
    try {
        buffer::of(SIZE_MAX - 10);
        FAIL() << "no throw";
    } catch (const error& wrong) {
        EXPECT_EQ(wrong.code().code, errc::no_memory);
    }
    buffer_pool pool;
    EXPECT_EQ(pool.try_take(SIZE_MAX / 2 + 1).data(), nullptr);
    EXPECT_THROW(pool.take(SIZE_MAX), error);
}

TEST(buffer_pool, capacity_is_the_next_power_of_two_and_data_is_aligned) {
    buffer_pool pool;
    for (std::size_t size : {0, 1, 255, 256, 257, 4096, 4097, 1 << 20, (64 << 20) + 1}) {
        buffer b = pool.take(size);
        EXPECT_EQ(b.size(), size);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b.data()) % 64, 0u);
        if (size <= buffer_pool::largest_bytes) {
            EXPECT_GE(b.capacity(), buffer_pool::smallest_bytes);
            EXPECT_EQ(b.capacity() & (b.capacity() - 1), 0u);
            EXPECT_TRUE(b.capacity() == 256 || b.capacity() < 2 * size);
        } else {
            EXPECT_EQ(b.capacity(), size);
        }
    }
}

TEST(buffer_pool, takes_from_the_heap_only_what_is_out_at_once) {
    buffer_pool pool;
    for (int round = 0; round < 100; ++round) {
        buffer a = pool.take(300);
        buffer b = pool.take(400);
        EXPECT_NE(a.data(), b.data());
    }
    EXPECT_EQ(pool.counts().allocated, 2u);
    EXPECT_EQ(pool.counts().freed, 0u);
    EXPECT_EQ(pool.counts().idle_bytes, 2 * 512u);
}

TEST(buffer_pool, reuses_what_another_thread_took_or_returned) {
    buffer_pool pool;
    buffer first = pool.take(1 << 20);
    std::thread([&] { first.reset(); }).join();
    std::thread([&] { first = pool.take(1 << 20); }).join();
    first.reset();
    buffer small = pool.take(64);
    std::thread([&] { small.reset(); }).join();
    std::thread([&] { small = pool.take(64); }).join();
    EXPECT_EQ(pool.counts().allocated, 2u);
}

TEST(buffer_pool, memory_past_the_threshold_goes_back_to_the_heap) {
    buffer_pool pool({.keep_bytes_per_class = 64 << 10});
    std::vector<buffer> out;
    for (int i = 0; i < 1000; ++i)
        out.push_back(pool.take(1024));
    out.clear();
    EXPECT_LE(pool.counts().idle_bytes, 64u << 10);
    EXPECT_GT(pool.counts().idle_bytes, 0u);
    EXPECT_GE(pool.counts().freed, 1000u - 64);
}

TEST(buffer_pool, one_block_larger_than_the_threshold_is_kept) {
    buffer_pool pool({.keep_bytes_per_class = 1 << 20});
    { buffer a = pool.take(4 << 20), b = pool.take(4 << 20); }
    EXPECT_EQ(pool.counts().idle_bytes, 4u << 20);
}

TEST(buffer_pool, trim_gives_all_free_memory_back) {
    buffer_pool pool;
    buffer out = pool.take(100);
    pool.take(100).reset();
    pool.take(100'000).reset();
    pool.trim();
    EXPECT_EQ(pool.counts().idle_bytes, 0u);
    EXPECT_EQ(pool.counts().freed, pool.counts().allocated - 1);
}

TEST(buffer_pool, buffers_outlive_their_pool) {
    auto pool = std::make_unique<buffer_pool>();
    buffer small = pool->take(10), large = pool->take(1 << 20), huge = pool->take(65 << 20);
    pool->take(10).reset();
    pool.reset();
    small.data()[9] = large.data()[(1 << 20) - 1] = huge.data()[0] = std::byte{1};
    std::thread([b = std::move(small)] {}).join();
}

// Model check: a buffer keeps its contents until it is destroyed, whatever other threads take and
// return.
TEST(buffer_pool, threads_never_share_a_buffer_that_is_out) {
    buffer_pool pool({.keep_bytes_per_class = 16 << 10});
    std::mutex lock;
    std::vector<std::pair<buffer, unsigned char>> exchanged;
    auto work = [&](std::uint64_t seed) {
        seeded_random random(seed);
        std::vector<std::pair<buffer, unsigned char>> mine;
        for (int i = 0; i < 4000; ++i) {
            if (mine.size() < 8 && random.chance(0.6)) {
                buffer b = pool.take(random.below(random.chance(0.1) ? 70'000 : 600) + 1);
                auto mark = static_cast<unsigned char>(random());
                std::memset(b.data(), mark, b.size());
                mine.emplace_back(std::move(b), mark);
            } else if (!mine.empty()) {
                std::swap(mine[random.below(mine.size())], mine.back());
                for (std::byte one : mine.back().first.bytes()) {
                    ASSERT_EQ(one, std::byte{mine.back().second});
                }
                std::lock_guard hold(lock);
                exchanged.push_back(std::move(mine.back()));
                mine.pop_back();
                if (exchanged.size() > 16) {
                    mine.push_back(std::move(exchanged[random.below(exchanged.size())]));
                    exchanged.clear();
                }
            }
        }
    };
    std::vector<std::thread> threads;
    for (std::uint64_t seed = 1; seed <= 4; ++seed)
        threads.emplace_back(work, seed);
    for (auto& one : threads)
        one.join();
    exchanged.clear();
    auto counts = pool.counts();
    pool.trim();
    EXPECT_EQ(pool.counts().freed, counts.allocated);
}

TEST(buffer_pool, closing_it_while_buffers_return_loses_none) {
    for (int round = 0; round < 200; ++round) {
        auto pool = std::make_unique<buffer_pool>();
        std::vector<buffer> a, b;
        for (int i = 0; i < 8; ++i) {
            a.push_back(pool->take(256));
            b.push_back(pool->take(256));
        }
        std::thread one([&] { a.clear(); });
        std::thread two([&] { b.clear(); });
        pool.reset();  // Under AddressSanitizer a lost block is a leak.
        one.join();
        two.join();
    }
}

}  // namespace
}  // namespace amalgam
