#include "fabric/rma/region_table.hpp"

#include <array>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>

namespace amalgam::detail {
namespace {

constexpr std::uint64_t incarnation = 0x1234;

class region_table_test : public testing::Test {
protected:
    remote_key open(access rights = access::read_write) {
        const mutable_bytes whole(memory_);
        return table_.open(scatter(&whole, 1), rights).value();
    }
    bool allowed(const remote_key& key, std::uint64_t offset, std::uint64_t bytes,
                 access asked = access::read) {
        return table_.check(key, offset, bytes, asked) != nullptr;
    }

    std::array<std::byte, 1000> memory_{};
    region_table table_{incarnation};
};

TEST_F(region_table_test, bounds_hold_to_the_byte_and_do_not_wrap_around) {
    const remote_key key = open();
    constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
    EXPECT_TRUE(allowed(key, 0, 1000));
    EXPECT_TRUE(allowed(key, 999, 1));
    EXPECT_TRUE(allowed(key, 1000, 0));
    EXPECT_FALSE(allowed(key, 0, 1001));
    EXPECT_FALSE(allowed(key, 1000, 1));
    EXPECT_FALSE(allowed(key, 1001, 0));
    EXPECT_FALSE(allowed(key, most, 2));
    EXPECT_FALSE(allowed(key, 2, most));
    EXPECT_FALSE(allowed(key, most, most));
}

TEST_F(region_table_test, rights_are_those_that_were_granted) {
    const remote_key read_only = open(access::read);
    EXPECT_TRUE(allowed(read_only, 0, 1, access::read));
    EXPECT_FALSE(allowed(read_only, 0, 1, access::write));
    const remote_key write_only = open(access::write);
    EXPECT_FALSE(allowed(write_only, 0, 1, access::read));
    EXPECT_TRUE(allowed(write_only, 0, 1, access::write));
}

TEST_F(region_table_test, a_key_with_any_bit_changed_is_refused) {
    const auto wire = open().encode();
    for (std::size_t bit = 0; bit < 33 * 8; ++bit) {  // The rest is reserved.
        auto forged = wire;
        forged[bit / 8] ^= std::byte{1} << (bit % 8);
        EXPECT_FALSE(allowed(remote_key::decode(forged), 0, 1)) << "bit " << bit;
    }
    EXPECT_TRUE(allowed(remote_key::decode(wire), 0, 1));
}

TEST_F(region_table_test, a_stale_key_is_refused_also_when_its_slot_is_used_again) {
    const remote_key stale = open();
    EXPECT_TRUE(table_.close(stale.region));
    EXPECT_FALSE(table_.close(stale.region));
    EXPECT_FALSE(allowed(stale, 0, 1));
    const remote_key next = open();
    EXPECT_FALSE(allowed(stale, 0, 1));
    EXPECT_TRUE(allowed(next, 0, 1));
    remote_key mixed = stale;
    mixed.secret = next.secret;
    EXPECT_FALSE(allowed(mixed, 0, 1));
}

TEST_F(region_table_test, a_key_of_another_incarnation_is_refused) {
    remote_key key = open();
    ++key.incarnation;
    EXPECT_FALSE(allowed(key, 0, 1));
}

TEST_F(region_table_test, segments_are_one_range_in_order) {
    seeded_random random(3);
    std::vector<mutable_bytes> segments;
    std::vector<std::byte*> expected;
    std::size_t at = 0;
    while (at + 20 < memory_.size()) {
        const std::size_t size = random.below(10);  // Including empty ones.
        segments.emplace_back(memory_.data() + at, size);
        for (std::size_t i = 0; i < size; ++i)
            expected.push_back(memory_.data() + at + i);
        at += size + random.below(10);
    }
    const remote_key key = table_.open(segments, access::read).value();
    EXPECT_EQ(key.bytes, expected.size());
    for (int i = 0; i < 1000; ++i) {
        const std::size_t offset = random.below(expected.size() + 1);
        const std::size_t size = random.below(expected.size() - offset + 1);
        const region_entry* entry = table_.check(key, offset, size, access::read);
        ASSERT_NE(entry, nullptr);
        segment_cursor from = entry->at(offset);
        std::vector<mutable_bytes> pieces;
        slice(scatter(entry->segments), from, size, pieces);
        std::vector<std::byte*> got;
        for (mutable_bytes piece : pieces)
            for (std::byte& one : piece)
                got.push_back(&one);
        ASSERT_EQ(got, std::vector<std::byte*>(
                           expected.begin() + static_cast<std::ptrdiff_t>(offset),
                           expected.begin() + static_cast<std::ptrdiff_t>(offset + size)));
    }
}

TEST_F(region_table_test, segments_longer_than_memory_are_refused) {
    constexpr std::size_t half = std::numeric_limits<std::size_t>::max() / 2 + 1;
    const std::array<mutable_bytes, 2> absurd{mutable_bytes(memory_.data(), half),
                                              mutable_bytes(memory_.data(), half)};
    EXPECT_EQ(table_.open(absurd, access::read).code(), errc::invalid);
}

TEST(remote_key_test, survives_the_wire) {
    remote_key key;
    key.secret = 0x0102030405060708;
    key.region = 0x1112131415161718;
    key.incarnation = 0x2122232425262728;
    key.bytes = 0x3132333435363738;
    key.rights = access::write;
    const auto wire = key.encode();
    EXPECT_EQ(wire[0], std::byte{0x08});  // Little-endian.
    EXPECT_EQ(wire[39], std::byte{0});
    EXPECT_EQ(remote_key::decode(wire), key);
}

}  // namespace
}  // namespace amalgam::detail
