#include "fabric/transports/shm/memory/registrations.hpp"

#include <array>
#include <vector>

#include <gtest/gtest.h>

namespace amalgam::detail {
namespace {

using found_kind = shm_found_region::kind;

shm_registrations_view view_of(const shm_registrations& registrations) {
    return shm_registrations_view(shm_mapping::of(
        registrations.fd(), 0, shm_registrations_layout::bytes, /*writable=*/false));
}

remote_key key_of(std::uint32_t slot, std::uint32_t generation, std::uint64_t bytes) {
    remote_key key;
    key.secret = 77;
    key.region = std::uint64_t{generation} << 32 | slot;
    key.incarnation = 5;
    key.bytes = bytes;
    key.rights = access::read_write;
    return key;
}

struct shm_registrations_test : testing::Test {
    shm_registrations registrations = shm_registrations::make().value();
    shm_registrations_view seen = view_of(registrations);
    std::array<std::byte, 100> bytes{};
    std::array<mutable_bytes, 2> segments{mutable_bytes(bytes).first(30),
                                          mutable_bytes(bytes).subspan(40, 20)};
    remote_key key = key_of(3, 1, 50);

    found_kind find(const remote_key& with, std::uint64_t offset = 0, std::uint64_t length = 1,
                    access asked = access::read) const {
        return seen.find(with, offset, length, asked).what;
    }
};

TEST_F(shm_registrations_test, published_region_is_found_with_its_segments) {
    registrations.publish(key, segments);
    const shm_found_region found = seen.find(key, 0, 50, access::write);
    ASSERT_EQ(found.what, found_kind::open);
    ASSERT_EQ(found.segment_count, 2u);
    EXPECT_EQ(found.segments[0].data(), bytes.data());
    EXPECT_EQ(found.segments[0].size(), 30u);
    EXPECT_EQ(found.segments[1].data(), bytes.data() + 40);
    EXPECT_EQ(found.segments[1].size(), 20u);
}

TEST_F(shm_registrations_test, key_that_differs_in_anything_is_refused) {
    registrations.publish(key, segments);
    remote_key forged = key;
    forged.bytes = 1000;
    EXPECT_EQ(find(forged), found_kind::refused);
    forged = key;
    forged.rights = access::read;
    EXPECT_EQ(find(forged), found_kind::refused);
}

TEST_F(shm_registrations_test, range_outside_the_region_is_refused) {
    registrations.publish(key, segments);
    EXPECT_EQ(find(key, 50, 0), found_kind::open);
    EXPECT_EQ(find(key, 50, 1), found_kind::refused);
    EXPECT_EQ(find(key, 0, 51), found_kind::refused);
    EXPECT_EQ(find(key, 51, 0), found_kind::refused);
    EXPECT_EQ(find(key, ~0ull, 2), found_kind::refused) << "the sum wraps around";
}

TEST_F(shm_registrations_test, right_that_was_not_granted_is_refused) {
    key.rights = access::read;
    registrations.publish(key, segments);
    EXPECT_EQ(find(key, 0, 1, access::read), found_kind::open);
    EXPECT_EQ(find(key, 0, 1, access::write), found_kind::refused);
}

TEST_F(shm_registrations_test, what_is_not_shown_is_the_owners_to_judge) {
    EXPECT_EQ(find(key), found_kind::unknown);
    registrations.publish(key, segments);
    EXPECT_EQ(find(key_of(3, 2, 50)), found_kind::unknown) << "another generation";
    EXPECT_EQ(find(key_of(shm_registrations_layout::slot_count, 1, 50)), found_kind::unknown);
    remote_key bound = key;
    bound.secret ^= 1;
    EXPECT_EQ(find(bound), found_kind::unknown) << "it may be for one peer";
    EXPECT_TRUE(registrations.withdraw(key));
    EXPECT_FALSE(registrations.withdraw(key));
    EXPECT_EQ(find(key), found_kind::unknown);
}

TEST_F(shm_registrations_test, slot_used_again_opens_for_its_new_key_only) {
    registrations.publish(key, segments);
    registrations.withdraw(key);
    const remote_key next = key_of(3, 2, 30);
    registrations.publish(next, scatter(segments).first(1));
    EXPECT_EQ(find(next), found_kind::open);
    EXPECT_EQ(find(key), found_kind::unknown);
}

TEST_F(shm_registrations_test, region_of_many_segments_is_not_shown) {
    std::vector<mutable_bytes> many(shm_region_slot::max_segments + 1, segments[1]);
    remote_key wide = key_of(4, 1, 20 * many.size());
    registrations.publish(wide, many);
    EXPECT_EQ(find(wide), found_kind::unknown);
    EXPECT_FALSE(registrations.withdraw(wide));
}

TEST_F(shm_registrations_test, region_past_the_last_slot_is_not_shown_and_changes_no_other) {
    constexpr auto count = static_cast<std::uint32_t>(shm_registrations_layout::slot_count);
    const remote_key last = key_of(count - 1, 1, 50), beyond = key_of(count, 1, 50);
    registrations.publish(last, segments);
    registrations.publish(beyond, segments);
    EXPECT_EQ(find(last), found_kind::open);
    EXPECT_EQ(find(beyond), found_kind::unknown);
    EXPECT_FALSE(registrations.withdraw(beyond));
    for (std::size_t i = 0; i < 3; ++i)
        EXPECT_FALSE(seen.block(i)) << "these are behind the last slot";
    EXPECT_FALSE(seen.block(shm_registrations_layout::block_count));
}

TEST_F(shm_registrations_test, region_of_nothing_is_shown) {
    const remote_key nothing = key_of(0, 1, 0);
    registrations.publish(nothing, {});
    EXPECT_EQ(find(nothing, 0, 0), found_kind::open);
    EXPECT_EQ(find(nothing, 0, 1), found_kind::refused);
}

TEST_F(shm_registrations_test, peers_see_sleep_and_cannot_write) {
    const auto now = [this] { return seen.sleeping().load(); };
    EXPECT_EQ(now() % 4, 0u);
    registrations.sleep(false);
    const std::uint64_t first = now();
    EXPECT_EQ(first % 4, 1u);
    registrations.wake();
    EXPECT_EQ(now() % 4, 0u);
    registrations.sleep(false);
    EXPECT_EQ(now() % 4, 1u);
    EXPECT_NE(now(), first) << "one sleep is told from the next";
    registrations.wake();
    registrations.sleep(true);
    EXPECT_EQ(now() % 4, 3u);
    registrations.wake();
    EXPECT_EQ(now() % 4, 2u);
    registrations.want_no_fences();
    EXPECT_EQ(now() % 4, 0u);
    EXPECT_FALSE(
        shm_mapping::of(registrations.fd(), 0, shm_registrations_layout::bytes, /*writable=*/true));
}

}  // namespace
}  // namespace amalgam::detail
