// Offers made by a port, and what their reader may do with them.
#include <algorithm>
#include <array>
#include <vector>

#include <gtest/gtest.h>

#include "fabric/limits.hpp"
#include "fabric/transports/shm/raw_peer.hpp"
#include "fabric/transports/shm/test_port.hpp"

namespace amalgam::detail {
namespace {

constexpr std::size_t message_bytes = 200'000;
constexpr std::size_t offered_bytes = message_bytes - limits::shm_prefix_bytes;

struct shm_offer_test : testing::Test {
    shm_offer_test() {
        for (std::size_t i = 0; i < bytes.size(); ++i)
            bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
        sent = bytes;
        greet(peer, here);
        peer.words().pulls.store(1);
        peer.write(frame_kind::unexpected, 0, {});
        move_until({&here}, [&] { return !here.tags.empty(); });
    }
    /// Makes the port offer a message of three segments.
    void have_offer() {
        const const_bytes all(bytes);
        segments = {all.first(100), all.subspan(100, 99'900), all.subspan(100'000)};
        ASSERT_EQ(here.end().post_send(here.from, 1, segments, done), posted::pending);
        move_until({&here}, [&] { return peer.has_record(); });
    }
    /// Requests the offered bytes from `from` on, and waits until they are in the bounce buffer.
    void ask(std::uint64_t from) {
        peer.words().asked_from.store(from);
        const std::uint64_t asked = peer.words().asked.fetch_add(1) + 1;
        move_until({&here}, [&] { return peer.words_of_port().brought.load() == asked; });
    }
    void expect_in_bounce_buffer(std::size_t from, std::size_t count) {
        const const_bytes right = const_bytes(sent).subspan(limits::shm_prefix_bytes + from, count);
        EXPECT_TRUE(std::equal(right.begin(), right.end(), peer.bounce_buffer()))
            << "from " << from;
    }

    shm_test_port here{"shm://"};
    shm_raw_peer peer{here.end().address()};
    std::vector<std::byte> bytes{std::vector<std::byte>(message_bytes)};
    std::vector<std::byte> sent;
    std::array<const_bytes, 3> segments;
    recorded done;
};

TEST_F(shm_offer_test, bytes_that_the_reader_asks_for_are_brought) {
    have_offer();
    for (std::size_t from = 0; from < offered_bytes; from += limits::shm_bounce_bytes) {
        ask(from);
        expect_in_bounce_buffer(from, std::min(limits::shm_bounce_bytes, offered_bytes - from));
    }
    EXPECT_EQ(done.runs, 0);
    peer.words().pulled.store(1);
    move_until({&here}, [&] { return done.runs == 1; });
    EXPECT_TRUE(done.what.ok());
    EXPECT_TRUE(here.losses.empty());
}

TEST_F(shm_offer_test, reader_may_have_copied_some_before_it_asks) {
    have_offer();
    ask(99'999);
    expect_in_bounce_buffer(99'999, limits::shm_bounce_bytes);
    ask(offered_bytes - 1);
    expect_in_bounce_buffer(offered_bytes - 1, 1);
}

TEST_F(shm_offer_test, bytes_are_brought_though_their_owner_took_them_back) {
    region source = here.end().open_region(bytes, access::read).value();
    const rma_request request{source.key(), 0, message_bytes};
    peer.write(frame_kind::get, sizeof request, as_bytes_of(request));
    move_until({&here}, [&] { return peer.has_record(); });
    source = region();
    std::fill(bytes.begin(), bytes.end(), std::byte{1});
    // The offer consists of the region's bytes, after eight bytes with their offset.
    ask(8 + 10);
    expect_in_bounce_buffer(10, limits::shm_bounce_bytes);
}

TEST_F(shm_offer_test, reader_that_asks_for_bytes_past_the_end_is_dropped) {
    have_offer();
    peer.words().asked_from.store(offered_bytes);
    peer.words().asked.store(1);
    move_until({&here}, [&] { return !here.losses.empty(); });
    EXPECT_EQ(here.losses[0], errc::disconnected);
    EXPECT_EQ(done.runs, 1);
    peer.wait_until_dropped();
}

TEST_F(shm_offer_test, reader_that_answers_more_than_was_offered_is_dropped) {
    have_offer();
    peer.words().pulled.store(2);
    move_until({&here}, [&] { return !here.losses.empty(); });
    EXPECT_EQ(here.losses[0], errc::disconnected);
    peer.wait_until_dropped();
}

}  // namespace
}  // namespace amalgam::detail
