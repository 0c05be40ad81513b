#include "fabric/transports/shm/memory/blocks.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabric/transports/shm/memory/block_cache.hpp"
#include "fabric/transports/shm/test_port.hpp"

namespace amalgam::detail {
namespace {

/// Long enough to get its own arena.
constexpr std::size_t large = shm_block_table::largest_cut + shm_page_bytes;

/// An owner of blocks and a peer, in one process.
struct shm_blocks_test : testing::Test {
    shm_registrations registrations = shm_registrations::make().value();
    shm_registrations_view seen{
        shm_mapping::of(registrations.fd(), 0, shm_registrations_layout::bytes, false)};
    std::optional<shm_block_table> table{std::in_place, registrations};
    shm_block_cache cache;

    std::byte* locate(std::size_t slot, const_bytes range, access asked = access::read) {
        return cache.locate(seen, ::getpid(), slot, range, asked);
    }
};

TEST_F(shm_blocks_test, peer_sees_the_same_bytes_at_another_address) {
    shared_block block = table->allocate(2 * shm_page_bytes).value();
    ASSERT_TRUE(block.is_shared());
    block.bytes()[shm_page_bytes + 7] = std::byte{9};
    std::byte* there = locate(0, block.bytes().subspan(shm_page_bytes), access::read_write);
    ASSERT_NE(there, nullptr);
    EXPECT_NE(there, block.bytes().data() + shm_page_bytes);
    EXPECT_EQ(there[7], std::byte{9});
    there[8] = std::byte{10};
    EXPECT_EQ(block.bytes()[shm_page_bytes + 8], std::byte{10});
}

TEST_F(shm_blocks_test, child_that_gives_a_block_back_takes_nothing_from_its_parent) {
    for (const std::size_t bytes : {shm_page_bytes, large}) {
        std::optional block = table->allocate(bytes).value();
        std::ranges::fill(block->bytes(), std::byte{7});
        const pid_t child = ::fork();
        if (child == 0) {
            block.reset();
            ::_exit(0);
        }
        int how = -1;
        ASSERT_EQ(::waitpid(child, &how, 0), child);
        EXPECT_EQ(how, 0);
        EXPECT_TRUE(std::ranges::all_of(block->bytes(), [](auto x) { return x == std::byte{7}; }));
        EXPECT_NE(locate(0, block->bytes()), nullptr);
    }
}

TEST_F(shm_blocks_test, range_outside_the_block_is_not_located) {
    shared_block block = table->allocate(large).value();
    const std::byte* start = block.bytes().data();
    EXPECT_NE(locate(0, {start, large}), nullptr);
    EXPECT_EQ(locate(0, {start, large + 1}), nullptr);
    EXPECT_EQ(locate(0, {start - 1, 1}), nullptr);
    EXPECT_EQ(locate(0, {start + large + 1, 0}), nullptr);
    EXPECT_EQ(locate(1, {start, 1}), nullptr) << "no block stands in that slot";
    EXPECT_EQ(locate(shm_registrations_layout::block_count, {start, 1}), nullptr);
    EXPECT_TRUE(cache.denied().ok());
}

TEST_F(shm_blocks_test, freed_block_is_let_go_of_and_its_pages_are_given_back) {
    shared_block block = table->allocate(large).value();
    block.bytes()[0] = std::byte{1};
    const std::byte* there = locate(0, block.bytes());
    ASSERT_EQ(there[0], std::byte{1});
    block = shared_block();
    EXPECT_EQ(cache.size(), 1u);
    EXPECT_EQ(there[0], std::byte{0}) << "a peer that sleeps would keep the memory";
    cache.drop_freed(seen);
    EXPECT_EQ(cache.size(), 0u);
}

TEST_F(shm_blocks_test, block_in_a_slot_used_again_is_mapped_anew) {
    shared_block first = table->allocate(large).value();
    ASSERT_NE(locate(0, first.bytes()), nullptr);
    first = shared_block();
    shared_block second = table->allocate(large).value();
    second.bytes()[0] = std::byte{2};
    EXPECT_EQ(*locate(0, second.bytes()), std::byte{2});
    cache.drop_freed(seen);
    EXPECT_EQ(cache.size(), 1u);
}

TEST_F(shm_blocks_test, nothing_that_the_owner_writes_unmaps_what_was_located) {
    shared_block first = table->allocate(large).value();
    shared_block second = table->allocate(large).value();
    first.bytes()[0] = std::byte{1};
    const std::byte* there = locate(0, first.bytes());
    ASSERT_NE(there, nullptr);
    // In the middle of a transfer that needs both: a region of two blocks.
    const shm_shown_block shown = *seen.block(0);
    registrations.withdraw_block(0);
    EXPECT_NE(locate(1, second.bytes()), nullptr);
    EXPECT_EQ(*there, std::byte{1}) << "this read would have been the end of us";
    EXPECT_EQ(locate(0, first.bytes()), nullptr);
    registrations.publish_block(0, shown);
    EXPECT_NE(locate(0, first.bytes()), nullptr) << "mapped once more";
    EXPECT_EQ(*there, std::byte{1});
    EXPECT_EQ(cache.size(), 3u);
    cache.drop_freed(seen);
    EXPECT_EQ(cache.size(), 2u);
}

TEST_F(shm_blocks_test, cache_that_is_full_lets_go_of_the_one_unused_for_longest) {
    std::vector<shared_block> blocks;
    for (std::size_t i = 0; i < shm_block_cache::capacity + 20; ++i) {
        blocks.push_back(table->allocate(large).value());
        blocks.back().bytes()[0] = static_cast<std::byte>(i);
        ASSERT_EQ(*locate(i, blocks.back().bytes()), static_cast<std::byte>(i));
        ASSERT_EQ(*locate(0, blocks[0].bytes()), std::byte{0});
        ASSERT_LE(cache.size(), shm_block_cache::capacity);
    }
    const std::byte* kept = locate(0, blocks[0].bytes());
    EXPECT_EQ(*locate(5, blocks[5].bytes()), std::byte{5}) << "mapped once more";
    EXPECT_EQ(locate(0, blocks[0].bytes()), kept);
}

TEST_F(shm_blocks_test, descriptor_that_is_something_else_by_now_is_not_mapped) {
    shared_block block = table->allocate(large).value();
    shm_shown_block shown = *seen.block(0);
    shared_block other = table->allocate(large).value();
    shown.descriptor = seen.block(1)->descriptor;
    registrations.withdraw_block(0);
    registrations.publish_block(0, shown);
    EXPECT_EQ(locate(0, block.bytes()), nullptr);
    EXPECT_FALSE(cache.denied().ok());
    EXPECT_EQ(locate(1, other.bytes()), nullptr) << "tried again after a denial";
}

TEST_F(shm_blocks_test, block_shown_longer_than_it_is_is_not_mapped) {
    shared_block block = table->allocate(large).value();
    shm_shown_block shown = *seen.block(0);
    shown.bytes = large + shm_page_bytes;
    registrations.withdraw_block(0);
    registrations.publish_block(0, shown);
    EXPECT_EQ(locate(0, block.bytes()), nullptr) << "an access past its end would fault";
}

TEST_F(shm_blocks_test, without_descriptors_blocks_are_private_and_peers_wait_a_while) {
    shared_block before = table->allocate(large).value();
    rlimit limit{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    const rlimit none{0, limit.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    shared_block after = table->allocate(large).value();
    const std::byte* there = locate(0, before.bytes());
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);

    EXPECT_FALSE(after.is_shared());
    EXPECT_EQ(after.bytes().size(), large);
    EXPECT_EQ(table->private_blocks().blocks, 1u);
    EXPECT_EQ(table->private_blocks().why.native, EMFILE);
    EXPECT_EQ(there, nullptr);
    EXPECT_TRUE(cache.denied().ok()) << "it may pass";
    for (int i = 0; there == nullptr && i < 10000; ++i)
        there = locate(0, before.bytes());
    EXPECT_NE(there, nullptr);
}

TEST_F(shm_blocks_test, more_blocks_than_the_table_shows_are_private) {
    rlimit limit{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    const rlimit many{std::min<rlim_t>(limit.rlim_max, 4096), limit.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &many), 0);
    std::vector<shared_block> blocks;
    while (table->private_blocks().blocks == 0 && blocks.size() < 5000)
        blocks.push_back(table->allocate(large).value());
    EXPECT_FALSE(blocks.back().is_shared());
    EXPECT_LE(blocks.size(), shm_registrations_layout::block_count + 1);
    blocks.front() = shared_block();
    EXPECT_TRUE(table->allocate(large).value().is_shared());
    ::setrlimit(RLIMIT_NOFILE, &limit);
}

TEST_F(shm_blocks_test, block_outlives_its_table) {
    shared_block block = table->allocate(shm_page_bytes).value();
    table.reset();
    EXPECT_FALSE(block.is_shared());
    block.bytes()[0] = std::byte{1};
}

TEST_F(shm_blocks_test, small_blocks_share_a_slot_and_are_mapped_by_one_call) {
    std::vector<shared_block> blocks;
    for (std::size_t i = 0; i < 1000; ++i) {
        blocks.push_back(table->allocate(shm_page_bytes).value());
        blocks.back().bytes()[0] = static_cast<std::byte>(i);
    }
    for (std::size_t i = 0; i < 1000; ++i)
        ASSERT_EQ(*locate(0, blocks[i].bytes()), static_cast<std::byte>(i));
    EXPECT_EQ(cache.size(), 1u);
    blocks.clear();
    cache.drop_freed(seen);
    EXPECT_EQ(cache.size(), 0u);
}

TEST_F(shm_blocks_test, half_of_the_descriptors_stay_free_for_others) {
    rlimit limit{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    const rlimit few{64, limit.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    std::vector<shared_block> blocks;
    for (int i = 0; i < 100; ++i)
        blocks.push_back(table->allocate(large).value());
    const unique_fd another(::dup(registrations.fd()));
    ::setrlimit(RLIMIT_NOFILE, &limit);
    EXPECT_FALSE(blocks.back().is_shared());
    EXPECT_TRUE(another);
}

TEST_F(shm_blocks_test, blocks_come_and_go_on_any_thread) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i)
        threads.emplace_back([&] {
            for (int round = 0; round < 200; ++round) {
                shared_block one = table->allocate(shm_page_bytes).value();
                shared_block other = table->allocate(5 * shm_page_bytes).value();
                one.bytes()[0] = other.bytes()[0] = std::byte{1};
                EXPECT_NE(table->names_of(std::array{one.bytes(), other.bytes()}), 0u);
            }
        });
    for (std::thread& one : threads)
        one.join();
    EXPECT_EQ(seen.block_version(0) % 2, 1u) << "the last one took the arena with it";
}

TEST_F(shm_blocks_test, segments_are_named_by_the_blocks_they_lie_in) {
    shared_block first = table->allocate(large).value();
    shared_block second = table->allocate(large).value();
    std::vector<std::byte> elsewhere(10);
    const mutable_bytes parts[] = {second.bytes().first(10), elsewhere, first.bytes(),
                                   mutable_bytes(first.bytes().data() + 1, large)};
    shm_found_region found;
    found.blocks = table->names_of(parts);
    EXPECT_EQ(found.block_of(0), 1u);
    EXPECT_EQ(found.block_of(1), shm_registrations_layout::block_count);
    EXPECT_EQ(found.block_of(2), 0u);
    EXPECT_EQ(found.block_of(3), shm_registrations_layout::block_count) << "reaches past its end";
}

/// Two ports that may not attach to each other's memory.
struct shm_blocks_ports : testing::Test {
    shm_test_port owner{"shm://?rma=blocks"}, asker{"shm://?rma=blocks"};
    peer_id to = asker.reach(owner);

    void meet() {
        asker.send(to, 1, {});
        move_until({&owner, &asker}, [&] { return !owner.tags.empty(); });
    }
};

TEST_F(shm_blocks_ports, transfer_within_a_block_needs_nothing_of_the_target) {
    meet();
    shared_block block = owner.end().allocate(3 << 20).value();
    const region whole = owner.end().open_region(block.bytes(), access::read_write).value();
    std::vector<std::byte> out(3 << 20, std::byte{5}), in(out.size());
    const const_bytes from(out);
    const mutable_bytes into(in);
    recorded op;
    EXPECT_EQ(asker.end().post_put(to, gather(&from, 1), whole.key(), 0, op), posted::done);
    EXPECT_EQ(asker.end().post_get(to, scatter(&into, 1), whole.key(), 0, op), posted::done);
    EXPECT_EQ(in, out);
}

TEST_F(shm_blocks_ports, region_partly_outside_of_blocks_goes_by_frames) {
    meet();
    shared_block block = owner.end().allocate(shm_page_bytes).value();
    std::vector<std::byte> elsewhere(shm_page_bytes);
    const mutable_bytes parts[] = {block.bytes(), elsewhere};
    const region both = owner.end().open_region(scatter(parts), access::read_write).value();
    std::vector<std::byte> out(2 * shm_page_bytes, std::byte{5});
    const const_bytes from(out);
    recorded op;
    ASSERT_EQ(asker.end().post_put(to, gather(&from, 1), both.key(), 0, op), posted::pending);
    move_until({&owner, &asker}, [&] { return op.runs > 0; });
    EXPECT_TRUE(op.ended_with(errc::ok));
    EXPECT_EQ(elsewhere[shm_page_bytes - 1], std::byte{5});
}

TEST_F(shm_blocks_ports, what_cannot_be_mapped_goes_by_frames_and_explain_says_so) {
    meet();
    shared_block block = owner.end().allocate(shm_page_bytes).value();
    const region whole = owner.end().open_region(block.bytes(), access::read_write).value();
    rlimit limit{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    const rlimit none{0, limit.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    const const_bytes from(block.bytes());
    recorded op;
    const posted how = asker.end().post_put(to, gather(&from, 1), whole.key(), 0, op);
    shared_block more = owner.end().allocate(large).value();
    ::setrlimit(RLIMIT_NOFILE, &limit);
    EXPECT_EQ(how, posted::pending);
    move_until({&owner, &asker}, [&] { return op.runs > 0; });
    EXPECT_TRUE(op.ended_with(errc::ok));
    EXPECT_FALSE(more.is_shared());
    EXPECT_NE(owner.end().explain().find("blocks so far, 1 are private"), std::string::npos)
        << owner.end().explain();
}

}  // namespace
}  // namespace amalgam::detail
