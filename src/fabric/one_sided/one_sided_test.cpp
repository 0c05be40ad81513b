// One-sided transfers over a device in memory: when it carries them.
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>

#include "fabric/one_sided/exposures.hpp"
#include "fabric/one_sided/local_memory.hpp"
#include "fabric/one_sided/peer_keys.hpp"
#include "fabric/one_sided/two_ports_testing.hpp"

namespace amalgam::detail {
namespace {

using namespace testing_support;

TEST_F(one_sided_test, port_says_who_carries_its_transfers) {
    open();
    EXPECT_EQ(a_->end->can().rma, rma_mode::one_sided);
    device_a_.through_own_memory = 77;
    EXPECT_EQ(a_->end->transfers().copied_bytes, 77u);
}

TEST_F(one_sided_test, after_the_first_the_device_carries_transfers_without_the_target) {
    prepare();
    recorded op;
    ASSERT_EQ(put(near_, op), posted::pending);
    a_until([&] { return op.runs > 0; });
    EXPECT_TRUE(op.ended_with(errc::ok));
    EXPECT_EQ(op.bytes, size);
    EXPECT_EQ(far_, near_);
    EXPECT_EQ(device_a_.copied_bytes, size);

    recorded other;
    std::vector<std::byte> copy(size);
    ASSERT_EQ(get(copy, other), posted::pending);
    a_until([&] { return other.runs > 0; });
    EXPECT_TRUE(other.ended_with(errc::ok));
    EXPECT_EQ(copy, near_);
    EXPECT_EQ(device_b_.exposures, 1u) << "asked for once";
    EXPECT_EQ(a_->end->transfers().direct, 2u);
    EXPECT_EQ(a_->end->transfers().direct_bytes, 2 * size);
    EXPECT_EQ(a_->end->transfers().copied_bytes, 0u);
    EXPECT_EQ(b_->end->transfers().served, 1u) << "the first";
    region_ = {};
}

TEST_F(one_sided_test, region_of_many_segments_is_one_range_at_both_ends) {
    open();
    seeded_random dice(7);
    far_.resize(64 * 300);
    std::vector<mutable_bytes> segments;
    for (std::size_t at = 0; segments.size() < 60;) {
        const std::size_t some = dice.below(300);
        segments.push_back(mutable_bytes(far_).subspan(at, some));
        at += some;
    }
    region_ = b_->end->open_region(segments, access::read_write).value();
    key_ = region_.key();
    warm_up();
    std::vector<std::byte> model(key_.bytes);
    near_ = pattern(key_.bytes, 3);
    for (int i = 0; i < 200; ++i) {
        const std::size_t bytes = 1 + dice.below(key_.bytes);
        const std::size_t offset = dice.below(key_.bytes - bytes + 1);
        const std::size_t from = dice.below(key_.bytes - bytes + 1);
        const std::size_t cut = dice.below(bytes + 1);
        recorded op;
        if (i % 3 != 0) {
            const const_bytes all = const_bytes(near_).subspan(from, bytes);
            const const_bytes pieces[] = {all.first(cut), {}, all.subspan(cut)};
            ASSERT_EQ(a_->end->post_put(there_, pieces, key_, offset, op), posted::pending);
            a_until([&] { return op.runs > 0; });
            std::copy(all.begin(), all.end(), model.begin() + static_cast<std::ptrdiff_t>(offset));
        } else {
            std::vector<std::byte> copy(bytes);
            const mutable_bytes pieces[] = {mutable_bytes(copy).first(cut),
                                            mutable_bytes(copy).subspan(cut)};
            ASSERT_EQ(a_->end->post_get(there_, pieces, key_, offset, op), posted::pending);
            a_until([&] { return op.runs > 0; });
            ASSERT_TRUE(std::equal(copy.begin(), copy.end(),
                                   model.begin() + static_cast<std::ptrdiff_t>(offset)));
        }
        ASSERT_TRUE(op.ended_with(errc::ok)) << i;
    }
    region_ = {};
}

TEST_F(one_sided_test, region_of_too_many_segments_is_reached_by_messages) {
    open();
    far_.resize(peer_keys::max_segments + 1);
    std::vector<mutable_bytes> segments;
    for (std::byte& one : far_)
        segments.push_back({&one, 1});
    region_ = b_->end->open_region(segments, access::read_write).value();
    key_ = region_.key();
    for (int i = 0; i < 3; ++i) {
        recorded op;
        (void)put(const_bytes(near_).first(far_.size()), op);
        both_until([&] { return op.runs > 0; });
        EXPECT_TRUE(op.ended_with(errc::ok));
    }
    EXPECT_TRUE(std::equal(far_.begin(), far_.end(), near_.begin()));
    EXPECT_EQ(device_a_.started, 0u);
    EXPECT_EQ(device_b_.exposures, 0u);
    region_ = {};
}

TEST_F(one_sided_test,
       region_that_cannot_be_exposed_is_reached_by_messages_and_not_asked_for_again) {
    device_b_.exposes = false;
    open();
    expose();
    for (int i = 0; i < 3; ++i) {
        recorded op;
        (void)put(near_, op);
        both_until([&] { return op.runs > 0; });
        EXPECT_TRUE(op.ended_with(errc::ok));
    }
    EXPECT_EQ(far_, near_);
    EXPECT_EQ(device_a_.started, 0u);
    EXPECT_EQ(device_b_.exposures, 1u);
    region_ = {};
}

TEST_F(one_sided_test, memory_that_cannot_be_registered_goes_by_messages) {
    device_a_.registers = false;
    prepare();
    recorded op;
    ASSERT_EQ(put(near_, op), posted::pending);
    both_until([&] { return op.runs > 0; });
    EXPECT_TRUE(op.ended_with(errc::ok));
    EXPECT_EQ(far_, near_);
    EXPECT_EQ(device_a_.started, 0u);
    region_ = {};
}

TEST_F(one_sided_test, rights_are_those_of_the_key) {
    prepare(access::read);
    recorded op;
    key_.rights = access::read_write;  // Forged: another key than the one that is known.
    ASSERT_EQ(put(near_, op), posted::pending);
    both_until([&] { return op.runs > 0; });
    EXPECT_TRUE(op.ended_with(errc::denied));
    EXPECT_EQ(far_, std::vector<std::byte>(size));
    EXPECT_EQ(device_a_.started, 0u);
    region_ = {};
}

TEST_F(one_sided_test, full_device_is_asked_again) {
    device_a_.room = 1;
    prepare();
    recorded ops[5];
    std::vector<const_bytes> parts;
    for (std::size_t i = 0; i < 5; ++i)
        parts.push_back(const_bytes(near_).subspan(i * 2000, 2000));
    for (std::size_t i = 0; i < 5; ++i)
        ASSERT_EQ(a_->end->post_put(there_, {&parts[i], 1}, key_, i * 2000, ops[i]),
                  posted::pending);
    EXPECT_FALSE(a_->end->prepare_to_sleep());
    a_until([&] {
        return std::all_of(std::begin(ops), std::end(ops), [](auto& op) { return op.runs > 0; });
    });
    EXPECT_TRUE(std::equal(far_.begin(), far_.begin() + 10000, near_.begin()));
    region_ = {};
}

TEST_F(one_sided_test, port_sleeps_while_what_waits_is_behind_what_a_full_device_holds) {
    device_a_.room = 1;
    prepare();
    device_a_.stalled = true;
    recorded ops[5];
    const const_bytes part = const_bytes(near_).first(2000);
    for (recorded& op : ops)
        ASSERT_EQ(a_->end->post_put(there_, {&part, 1}, key_, 0, op), posted::pending);
    a_until([&] { return a_->end->prepare_to_sleep(); });
    a_->end->cancel(ops[2]);  // One that waits.
    a_until([&] { return ops[2].runs == 1 && a_->end->prepare_to_sleep(); });
    device_a_.stalled = false;
    a_until([&] {
        return std::all_of(std::begin(ops), std::end(ops), [](auto& op) { return op.runs == 1; });
    });
    EXPECT_TRUE(ops[4].ended_with(errc::ok));
    region_ = {};
}

TEST_F(one_sided_test, port_stays_awake_for_room_that_a_transfer_has_left) {
    device_a_.room = 2;
    prepare();
    device_a_.stalled = true;
    recorded ops[4];
    const const_bytes part = const_bytes(near_).first(2000);
    for (recorded& op : ops) {
        device_a_.delay = &op == ops ? 1 : 1000;
        ASSERT_EQ(a_->end->post_put(there_, {&part, 1}, key_, 0, op), posted::pending);
    }
    a_until([&] { return a_->end->prepare_to_sleep(); });
    ops[0].then = [&] { device_a_.stalled = true; };
    device_a_.stalled = false;
    a_until([&] { return ops[0].runs == 1; });
    EXPECT_EQ(device_a_.started, 2u);
    EXPECT_FALSE(a_->end->prepare_to_sleep());
    a_->end->progress();
    EXPECT_EQ(device_a_.started, 3u);
    device_a_.stalled = false;
    a_until([&] {
        return std::all_of(std::begin(ops), std::end(ops), [](auto& op) { return op.runs == 1; });
    });
    region_ = {};
}

TEST_F(one_sided_test, port_stays_awake_for_a_full_device_that_holds_nothing) {
    device_a_.room = 0;
    prepare();
    recorded op;
    ASSERT_EQ(put(near_, op), posted::pending);
    for (int i = 0; i < 100; ++i) {
        a_->end->progress();
        ASSERT_FALSE(a_->end->prepare_to_sleep());
    }
    device_a_.room = 16;
    a_until([&] { return op.runs == 1; });
    region_ = {};
}

TEST_F(one_sided_test, region_that_closed_is_not_touched_by_what_was_in_flight) {
    prepare();
    device_a_.stalled = true;
    recorded op;
    ASSERT_EQ(put(near_, op), posted::pending);
    region_ = {};
    device_a_.stalled = false;
    both_until([&] { return op.runs > 0; });
    EXPECT_TRUE(op.ended_with(errc::denied));
    EXPECT_EQ(far_, std::vector<std::byte>(size));

    // Its key was dropped, so the next goes by messages, which deny it too.
    const std::size_t before = device_a_.started;
    recorded later;
    (void)put(near_, later);
    both_until([&] { return later.runs > 0; });
    EXPECT_TRUE(later.ended_with(errc::denied));
    EXPECT_EQ(device_a_.started, before);
    EXPECT_EQ(device_a_.opened, device_a_.closed);
}

TEST_F(one_sided_test, region_and_block_are_registered_once_and_other_memory_for_each_transfer) {
    prepare();
    const auto transfer = [&](const_bytes from) {
        recorded op;
        ASSERT_EQ(put(from, op), posted::pending);
        a_until([&] { return op.runs > 0; });
        EXPECT_TRUE(op.ended_with(errc::ok));
    };
    shared_block block = a_->end->allocate(1 << 16).value();
    transfer(std::as_const(block).bytes().first(100));
    transfer(std::as_const(block).bytes().subspan(1000, 100));
    EXPECT_EQ(device_a_.registrations, 1u);
    EXPECT_EQ(device_a_.registered, 1u);
    block = {};
    a_->end->progress();
    EXPECT_EQ(device_a_.registered, 0u);

    {
        region mine = a_->end->open_region(near_, access::read).value();
        transfer(const_bytes(near_).first(100));
        transfer(const_bytes(near_).subspan(5000, 1000));
        EXPECT_EQ(device_a_.registrations, 2u);
        EXPECT_EQ(device_a_.registered, 1u);
    }
    EXPECT_EQ(device_a_.registered, 0u);

    transfer(const_bytes(near_).first(100));
    transfer(const_bytes(near_).first(100));
    EXPECT_EQ(device_a_.registrations, 4u);
    EXPECT_EQ(device_a_.registered, 0u);
    region_ = {};
}

TEST_F(one_sided_test, block_may_outlive_its_port) {
    open();
    shared_block block = a_->end->allocate(4096).value();
    a_.reset();
    std::fill(block.bytes().begin(), block.bytes().end(), std::byte{1});
}

TEST_F(one_sided_test, keys_are_asked_for_in_numbers_that_the_peer_allows) {
    open();
    std::vector<region> regions;
    std::vector<std::byte> memory(1000);
    for (std::size_t i = 0; i < 3 * peer_keys::max_questions; ++i)
        regions.push_back(
            b_->end->open_region(mutable_bytes(memory).subspan(10 * i, 10), access::write).value());
    for (int round = 0; round < 4; ++round) {
        std::vector<recorded> ops(regions.size());
        from_ = const_bytes(near_).first(10);
        for (std::size_t i = 0; i < regions.size(); ++i)
            (void)a_->end->post_put(there_, {&from_, 1}, regions[i].key(), 0, ops[i]);
        both_until([&] {
            return std::all_of(ops.begin(), ops.end(), [](auto& op) { return op.runs > 0; });
        });
        for (const recorded& op : ops)
            EXPECT_TRUE(op.ended_with(errc::ok));
    }
    EXPECT_TRUE(a_->lost.empty());
    EXPECT_EQ(device_b_.exposures, regions.size());
    regions.clear();
    both_until([&] { return device_a_.opened == device_a_.closed; });
}

TEST_F(one_sided_test, peer_is_told_of_so_many_regions_and_reaches_the_others_by_messages) {
    open();
    std::vector<std::byte> memory(exposures::max_told + 3);
    std::vector<region> regions;
    from_ = const_bytes(near_).first(1);
    for (std::size_t i = 0; i < memory.size(); ++i) {
        regions.push_back(
            b_->end->open_region(mutable_bytes(memory).subspan(i, 1), access::write).value());
        for (int round = 0; round < 2; ++round) {
            recorded op;
            (void)a_->end->post_put(there_, {&from_, 1}, regions[i].key(), 0, op);
            both_until([&] { return op.runs > 0; });
            ASSERT_TRUE(op.ended_with(errc::ok));
        }
        if (i + 2 == exposures::max_told) regions[0] = {};  // Makes room for one.
    }
    EXPECT_EQ(device_b_.exposures, exposures::max_told + 1);
    EXPECT_EQ(std::count(memory.begin(), memory.end(), near_[0]),
              static_cast<std::ptrdiff_t>(memory.size()));
    regions.clear();
    both_until([&] { return device_a_.opened == device_a_.closed; });
}

// ---- registrations of this end, in random order

TEST(local_memory, what_is_known_holds_what_is_used) {
    memory_device::settings with;
    memory_device device(with);
    local_memory memory(device);
    std::vector<std::byte> bytes(1000);
    seeded_random dice(3);
    struct opened {
        std::uint64_t id;
        mutable_bytes bytes;
    };
    std::vector<opened> regions;
    std::vector<pinned_memory*> used;
    for (std::uint64_t id = 1; id < 5000; ++id) {
        const std::size_t first = dice.below(900);
        const mutable_bytes some = mutable_bytes(bytes).subspan(first, 1 + dice.below(100));
        switch (dice.below(4)) {
            case 0:
                memory.region_opened(id, {&some, 1});
                regions.push_back({id, some});
                break;
            case 1: {
                if (regions.empty()) break;
                std::swap(regions[dice.below(regions.size())], regions.back());
                memory.region_closed(regions.back().id, {&regions.back().bytes, 1});
                regions.pop_back();
                break;
            }
            case 2: {
                pinned_memory* one = memory.use(some).value();
                ASSERT_TRUE(one->holds(some));
                ASSERT_NE(one->registered, nullptr);
                used.push_back(one);
                break;
            }
            default:
                if (used.empty()) break;
                std::swap(used[dice.below(used.size())], used.back());
                memory.leave(*used.back());
                used.pop_back();
        }
        for (const pinned_memory* each : used)
            ASSERT_NE(each->registered, nullptr) << "in use, whatever closed";
    }
    for (pinned_memory* one : used)
        memory.leave(*one);
    for (opened& one : regions)
        memory.region_closed(one.id, {&one.bytes, 1});
    EXPECT_EQ(with.registered, 0u);
}

TEST(local_memory, regions_within_a_region_do_not_hide_it) {
    memory_device::settings with;
    memory_device device(with);
    local_memory memory(device);
    std::vector<std::byte> bytes(1000);
    const mutable_bytes all(bytes);
    memory.region_opened(1, {&all, 1});
    for (std::uint64_t i = 0; i < 7; ++i) {
        const mutable_bytes some = all.subspan(100 + i, 10);
        memory.region_opened(2 + i, {&some, 1});
    }
    for (int i = 0; i < 3; ++i)
        memory.leave(*memory.use(all.subspan(110, 500)).value());
    EXPECT_EQ(with.registrations, 1u);
    EXPECT_EQ(with.registered, 1u);
}

}  // namespace
}  // namespace amalgam::detail
