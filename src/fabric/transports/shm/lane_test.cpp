// Short messages that are written right into the ring.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/fabric/extension/short_lane.hpp>

#include "fabric/transports/shm/raw_peer.hpp"
#include "fabric/transports/shm/test_port.hpp"

namespace amalgam::detail {
namespace {

/// Two connected ports, and the lane from the first to the second.
struct lane_pair {
    lane_pair() {
        here.send(to, 0, {});
        move_until({&here, &there}, [&] { return !there.tags.empty(); });
        there.tags.clear();
        lane = dynamic_cast<short_lanes&>(here.end()).lane_to(to);
    }
    /// False: there is no room.
    bool send(std::uint64_t tag, const_bytes bytes) {
        std::byte* const room = lane->room();
        if (room == nullptr) return false;
        short_lane::copy(room, bytes);
        lane->send(room, tag, bytes.size());
        return true;
    }
    /// By the port where the lane has no room.
    void send_any(std::uint64_t tag, const_bytes bytes) {
        if (!send(tag, bytes)) here.send(to, tag, bytes);
    }

    shm_test_port here{"shm://"};
    shm_test_port there{"shm://"};
    peer_id to = here.reach(there);
    short_lane* lane = nullptr;
};

std::vector<std::byte> pattern(std::size_t size) {
    std::vector<std::byte> bytes(size);
    for (std::size_t i = 0; i < size; ++i)
        bytes[i] = static_cast<std::byte>(i + size);
    return bytes;
}

TEST(shm_lane, carries_messages_of_every_size_up_to_its_limit) {
    lane_pair pair;
    ASSERT_NE(pair.lane, nullptr);
    for (std::size_t size = 0; size <= short_lane::max_bytes; ++size) {
        std::vector<std::byte> bytes = pattern(size);
        ASSERT_TRUE(pair.send(size, bytes));
        const std::vector<std::byte> sent = bytes;
        std::fill(bytes.begin(), bytes.end(), std::byte{0});  // It was copied.
        move_until({&pair.here, &pair.there}, [&] { return pair.there.tags.size() == size + 1; });
        EXPECT_EQ(pair.there.tags.back(), size);
        EXPECT_EQ(pair.there.last, sent);
    }
}

TEST(shm_lane, keeps_its_order_with_what_the_port_sends) {
    lane_pair pair;
    const std::vector<std::byte> brief = pattern(24), lengthy = pattern(3000);
    std::uint64_t sent = 0;
    for (int lap = 0; lap < 500; ++lap) {
        pair.send_any(sent++, brief);
        pair.send_any(sent++, brief);
        pair.here.send(pair.to, sent++, lap % 3 == 0 ? lengthy : brief);
        if (lap % 7 == 0) pair.there.progress();
    }
    move_until({&pair.here, &pair.there}, [&] { return pair.there.tags.size() == sent; });
    for (std::uint64_t i = 0; i < sent; ++i)
        EXPECT_EQ(pair.there.tags[i], i);
}

TEST(shm_lane, has_no_room_while_the_ring_is_full_or_something_waits) {
    lane_pair pair;
    const std::vector<std::byte> brief = pattern(8);
    std::uint64_t sent = 0;
    recorded done;
    const const_bytes piece(brief);
    // The port looks whether there is room again, so only its word is the last one.
    while (pair.send(sent, brief) ||
           pair.here.end().post_send(pair.to, sent, gather(&piece, 1), done) == posted::done)
        ++sent;
    EXPECT_EQ(pair.lane->room(), nullptr);
    move_until({&pair.here, &pair.there}, [&] { return pair.there.tags.size() == sent; });

    const std::vector<std::byte> huge = pattern(std::size_t{4} << 20);
    pair.here.send(pair.to, sent++, huge);
    EXPECT_EQ(pair.lane->room(), nullptr);  // It would overtake the rest of that.
    move_until({&pair.here, &pair.there}, [&] {
        return pair.send(sent, brief) ||
               pair.here.end().post_send(pair.to, sent, gather(&piece, 1), done) == posted::done;
    });
    ++sent;
    move_until({&pair.here, &pair.there}, [&] { return pair.there.tags.size() == sent; });
    EXPECT_EQ(pair.there.tags.back(), sent - 1);
}

TEST(shm_lane, has_no_room_after_the_peer_was_closed_or_lost) {
    {
        lane_pair pair;
        ASSERT_NE(pair.lane->room(), nullptr);
        pair.here.end().close(pair.to);
        EXPECT_EQ(pair.lane->room(), nullptr);
        EXPECT_EQ(dynamic_cast<short_lanes&>(pair.here.end()).lane_to(pair.to), nullptr);
    }
    shm_test_port here("shm://");
    auto there = std::make_optional<shm_test_port>("shm://");
    const peer_id to = here.reach(*there);
    here.send(to, 0, {});
    move_until({&here, &*there}, [&] { return !there->tags.empty(); });
    EXPECT_NE(dynamic_cast<short_lanes&>(here.end()).lane_to(to), nullptr);
    there.reset();
    move_until({&here}, [&] { return !here.losses.empty(); });
    EXPECT_EQ(dynamic_cast<short_lanes&>(here.end()).lane_to(to), nullptr);
}

TEST(shm_lane, is_none_to_a_peer_that_nobody_knows) {
    shm_test_port here("shm://");
    EXPECT_EQ(dynamic_cast<short_lanes&>(here.end()).lane_to(peer_id{77}), nullptr);
}

// A reader that sleeps is rung: else it would sleep for ever.
TEST(shm_lane, wakes_a_reader_that_sleeps) {
    lane_pair pair;
    std::atomic<std::uint64_t> read{0};
    constexpr std::uint64_t all = 300;
    std::thread reader([&] {
        for (std::uint64_t i = 1; i <= all; ++i) {
            sleep_until(pair.there, [&] { return pair.there.tags.size() >= i; });
            read = i;
        }
    });
    const std::vector<std::byte> brief = pattern(16);
    for (std::uint64_t i = 0; i < all; ++i) {
        pair.send_any(i, brief);
        while (read <= i)
            pair.here.progress();
    }
    reader.join();
    EXPECT_EQ(pair.there.tags.size(), all);
}

}  // namespace
}  // namespace amalgam::detail
