#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/bulk/bulk.hpp>
#include <amalgam/bulk/bulk_cache.hpp>
#include <amalgam/bulk/expose.hpp>
#include <amalgam/fabric/loop.hpp>

#include "bulk/bulk_testing.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

class pipelined : public testing::TestWithParam<const char*> {
protected:
    engine server{one_more(GetParam())};
    engine client{one_more(GetParam())};
    holder there{server};
    std::vector<std::byte> memory = pattern(1000003);
    exposed shown = expose(client, memory, access::read_write);
    const bulk& far = [this]() -> const bulk& {
        client.procedure<void(bulk)>("hold").on(client.lookup(server.address()))(shown);
        return there.held;
    }();
};

INSTANTIATE_TEST_SUITE_P(loop, pipelined, testing::Values("loop://"));
INSTANTIATE_TEST_SUITE_P(shm, pipelined, testing::ValuesIn(unless_thread_sanitizer({"shm://"})));
INSTANTIATE_TEST_SUITE_P(tcp, pipelined, testing::Values("tcp://127.0.0.1:0"));

TEST_P(pipelined, chunks_come_in_order_and_whole) {
    for (const std::size_t depth : {1u, 2u, 7u, 5000u}) {
        std::vector<std::byte> got;
        far.pull_pipelined(4096 * depth, depth, [&](const_bytes chunk, std::uint64_t offset) {
            EXPECT_EQ(offset, got.size());
            got.insert(got.end(), chunk.begin(), chunk.end());
        });
        EXPECT_TRUE(got == memory) << depth;
    }
    std::size_t chunks = 0;
    server.run([&] { far.pull_pipelined(1 << 20, 3, [&](const_bytes) { ++chunks; }); });
    EXPECT_EQ(chunks, 1u);
    bulk().pull_pipelined(100, 2, [&](const_bytes) { ++chunks; });
    EXPECT_EQ(chunks, 1u);
}

TEST_P(pipelined, a_chunk_longer_than_any_memory_is_all_of_it) {
    constexpr std::size_t longest = std::numeric_limits<std::size_t>::max();
    std::vector<std::byte> got;
    far.pull_pipelined(
        longest, 2, [&](const_bytes chunk) { got.insert(got.end(), chunk.begin(), chunk.end()); });
    EXPECT_TRUE(got == memory);
    const auto fresh = pattern(memory.size(), 3);
    far.push_pipelined(longest, 2, [&](mutable_bytes chunk, std::uint64_t offset) {
        std::memcpy(chunk.data(), fresh.data() + offset, chunk.size());
    });
    EXPECT_TRUE(memory == fresh);
}

TEST_P(pipelined, time_that_is_longer_than_clocks_count_is_no_deadline) {
    std::size_t bytes = 0;
    far.pull_pipelined(100000, 2, [&](const_bytes chunk) { bytes += chunk.size(); },
                       {.within = std::chrono::nanoseconds::max() - 1ns});
    EXPECT_EQ(bytes, memory.size());
}

TEST_P(pipelined, chunks_are_filled_in_order_and_all_arrive) {
    const auto fresh = pattern(memory.size(), 5);
    for (const std::size_t depth : {1u, 3u, 16u}) {
        std::fill(memory.begin(), memory.end(), std::byte{0});
        std::size_t filled = 0;
        bulk_cache cache(server);
        far.push_pipelined(10000, depth,
                           [&](mutable_bytes chunk, std::uint64_t offset) {
                               EXPECT_EQ(offset, filled);
                               std::memcpy(chunk.data(), fresh.data() + filled, chunk.size());
                               filled += chunk.size();
                           },
                           {.buffers = &cache});
        EXPECT_EQ(filled, memory.size());
        EXPECT_TRUE(memory == fresh) << depth;
        EXPECT_LE(cache.counts().bytes_idle, depth * 16384);
    }
}

TEST_P(pipelined, tells_what_was_worked_on_and_what_has_arrived) {
    std::vector<std::uint64_t> told;
    pipeline_options how{.on_progress = [&](std::uint64_t done) { told.push_back(done); }};
    const std::vector<std::uint64_t> by_chunk{300'000, 600'000, 900'000, 1'000'003};
    far.pull_pipelined(
        300'000, 2, [](const_bytes) {}, how);
    EXPECT_EQ(std::exchange(told, {}), by_chunk);
    // Three are filled before the first of them must have arrived.
    how.on_progress = [&](std::uint64_t done) {
        told.push_back(done);
        EXPECT_EQ(memory[done - 1], std::byte{7});
    };
    far.push_pipelined(
        300'000, 3,
        [&](mutable_bytes chunk) { std::fill(chunk.begin(), chunk.end(), std::byte{7}); }, how);
    EXPECT_EQ(told, by_chunk);
    how.on_progress = [](std::uint64_t) { throw 7; };
    const error why = error_of([&] {
        far.pull_pipelined(
            1000, 8, [](const_bytes) {}, how);
    });
    EXPECT_EQ(why.code(), errc::handler_failed);
    EXPECT_STREQ(why.what(), "on_progress threw an exception not derived from std::exception");
}

TEST_P(pipelined, what_the_work_throws_cancels_what_flies_and_surfaces) {
    int chunks = 0;
    EXPECT_THROW(far.pull_pipelined(1000, 8,
                                    [&](const_bytes) {
                                        if (++chunks == 5) throw std::out_of_range("five");
                                    }),
                 std::out_of_range);
    EXPECT_EQ(chunks, 5);
    EXPECT_THROW(far.push_pipelined(1000, 8,
                                    [&](mutable_bytes) {
                                        if (++chunks == 20) throw std::out_of_range("twenty");
                                    }),
                 std::out_of_range);
    EXPECT_EQ(chunks, 20);
    shown.close();
    EXPECT_EQ(error_of([&] { far.pull_pipelined(1000, 8, [](const_bytes) {}); }).code(),
              errc::denied);
    EXPECT_EQ(error_of([&] { far.push_pipelined(1000, 8, [](mutable_bytes) {}); }).code(),
              errc::denied);
    EXPECT_EQ(error_of([&] { far.push_pipelined(0, 8, [](mutable_bytes) {}); }).code(),
              errc::invalid);
}

TEST(pipelined_in_virtual_time, deadline_counts_for_all_of_it_and_at_most_depth_chunks_fly) {
    loop_network net;
    engine server{net.port("server")}, client{net.port("client")};
    std::vector<std::byte> memory = pattern(100000);
    const exposed shown = expose(client, memory, access::read);
    net.delay(1ms);
    std::size_t chunks = 0;
    server.define("work", [&](bulk what) {
        what.pull_pipelined(1000, 4, [&](const_bytes) { ++chunks; }, {.within = 9ms});
    });
    auto call =
        client.procedure<void(bulk)>("work").on(client.lookup("loop://server")).start(shown);
    net.run_until_idle();
    EXPECT_EQ(call.wait(), errc::handler_failed);
    // A round trip takes 2 ms, and moves four chunks.
    EXPECT_EQ(chunks, 16u);
    EXPECT_EQ(
        error_of([&] { shown.descriptor().pull_pipelined(10, 1, [](const_bytes) {}); }).code(),
        errc::invalid);
}

class cached : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(loop, cached, testing::Values("loop://"));
INSTANTIATE_TEST_SUITE_P(shm, cached, testing::ValuesIn(unless_thread_sanitizer({"shm://"})));
INSTANTIATE_TEST_SUITE_P(tcp, cached,
                         testing::ValuesIn(unless_thread_sanitizer({"tcp://127.0.0.1:0"})));

TEST_P(cached, buffers_are_registered_once_and_reach_each_other) {
    engine server{one_more(GetParam())}, client{one_more(GetParam())};
    holder there(server);
    bulk_cache of_client(client), of_server(server);
    const auto hold = client.procedure<void(bulk)>("hold").on(client.lookup(server.address()));
    std::byte* first = nullptr;
    for (int i = 0; i < 10; ++i) {
        bulk_buffer mine = of_client.take(100000);
        EXPECT_EQ(mine.size(), 100000u);
        EXPECT_GE(mine.capacity(), 100000u);
        if (first == nullptr) first = mine.data();
        EXPECT_EQ(mine.data(), first);
        const auto bytes = pattern(mine.size(), static_cast<unsigned>(i));
        std::copy(bytes.begin(), bytes.end(), mine.begin());
        hold(mine.descriptor());
        bulk_buffer theirs = of_server.take(static_cast<std::size_t>(there.held.bytes()));
        there.held.pull(theirs.bytes());
        EXPECT_EQ(std::memcmp(theirs.data(), bytes.data(), bytes.size()), 0);
    }
    const bulk_cache_counts counts = of_client.counts();
    EXPECT_EQ(counts.taken, 10u);
    EXPECT_EQ(counts.reused, 9u);
    EXPECT_EQ(counts.bytes_in_use, 0u);
    EXPECT_EQ(counts.bytes_idle, 131072u);
}

TEST_P(cached, limit_is_kept_and_idle_memory_makes_room) {
    engine here{one_more(GetParam())};
    bulk_cache cache(here, {.max_bytes = 64 << 10});
    bulk_buffer small = cache.take(1);
    EXPECT_EQ(small.capacity(), 4096u);
    { const bulk_buffer large = cache.take(32 << 10); }
    EXPECT_FALSE(cache.try_take(64 << 10));
    EXPECT_EQ(error_of([&] { cache.take((64 << 10) + 1); }).code(), errc::no_memory);
    small = bulk_buffer();
    const bulk_buffer all = cache.take(64 << 10);
    EXPECT_TRUE(all);
    EXPECT_FALSE(cache.try_take(1));
    EXPECT_EQ(cache.counts().bytes_in_use, 64u << 10);
    EXPECT_EQ(cache.counts().bytes_idle, 0u);
    EXPECT_EQ(cache.counts().released, 2u);
}

TEST_P(cached, buffers_outlive_their_cache_and_engine) {
    bulk_buffer left;
    {
        engine here{one_more(GetParam())};
        bulk_cache cache(here);
        left = cache.take(5000);
    }
    std::fill(left.begin(), left.end(), std::byte{1});
    EXPECT_EQ(left.size(), 5000u);
}

TEST_P(cached, buffers_may_end_on_any_thread) {
    engine here{one_more(GetParam())};
    bulk_cache cache(here);
    for (int i = 0; i < 20; ++i) {
        bulk_buffer one = cache.take(5000), other = cache.take(70000);
        std::thread([mine = std::move(one)] { EXPECT_EQ(mine.size(), 5000u); }).join();
        spawn(here.pool(), [mine = std::move(other)] { EXPECT_EQ(mine.size(), 70000u); }).join();
    }
    EXPECT_EQ(cache.counts().bytes_in_use, 0u);
    EXPECT_EQ(cache.counts().reused, 38u);
}

TEST_P(cached, exposed_as_its_own_a_buffer_returns_when_the_last_descriptor_is_gone) {
    engine here{one_more(GetParam())};
    bulk_cache cache(here, {.rights = access::read});
    bulk_buffer mine = cache.take(5000);
    mine.data()[4] = std::byte{44};
    bulk kept = expose_owned(here, std::move(mine));
    EXPECT_EQ(cache.counts().bytes_in_use, 8192u);
    bulk copy = kept.part(4, 1);
    kept = bulk();
    EXPECT_EQ(copy.pull_all()[0], std::byte{44});
    EXPECT_EQ(cache.counts().bytes_in_use, 8192u);
    copy = bulk();
    while (cache.counts().bytes_in_use != 0)  // The stream must first end the peers' access.
        std::this_thread::yield();
    engine other{one_more(GetParam())};
    EXPECT_EQ(error_of([&] { expose_owned(other, cache.take(10)); }).code(), errc::invalid);
}

TEST(bulk_cache, a_buffer_that_could_not_be_made_is_not_counted) {
    loop_network net;
    engine here{net.port("here")};
    bulk_cache cache(here);
    { const bulk_buffer before = cache.take(4096); }
    here.stop();
    EXPECT_THROW((void)cache.take(100'000), error);
    EXPECT_EQ(cache.counts().taken, 1u);
    EXPECT_EQ(cache.counts().bytes_in_use, 0u);
}

}  // namespace
}  // namespace amalgam
