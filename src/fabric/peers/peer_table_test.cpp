#include "fabric/peers/peer_table.hpp"

#include <set>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>

namespace amalgam::detail {
namespace {

struct silent_link final : frame_link {
    posted send(const frame_header&, gather, completion*) noexcept override { return posted::full; }
    bool forget(completion&) noexcept override { return false; }
    void detach(completion&) noexcept override {}
    void shut() noexcept override {}
};

class peer_table_test : public testing::Test, private peer_ender {
protected:
    void end_peer(peer_record&, status) noexcept override {}

    silent_link link_;
    peer_table peers_{*this, [](completion&, status, std::size_t) noexcept {}};
};

TEST_F(peer_table_test, an_id_is_never_used_twice) {
    std::set<peer_id> seen;
    seeded_random random(7);
    std::vector<peer_record*> alive;
    for (int i = 0; i < 5000; ++i) {
        if (!alive.empty() && random.chance(0.5)) {
            const std::size_t which = random.below(alive.size());
            peers_.remove(*alive[which]);
            alive.erase(alive.begin() + static_cast<std::ptrdiff_t>(which));
        } else {
            peer_record& one = peers_.add(link_, "somewhere", "");
            EXPECT_TRUE(one.id);
            EXPECT_TRUE(seen.insert(one.id).second);
            alive.push_back(&one);
        }
    }
    for (peer_record* one : alive)
        EXPECT_EQ(peers_.find(one->id), one);
}

TEST_F(peer_table_test, a_stale_or_made_up_id_finds_nobody) {
    peer_record& old = peers_.add(link_, "a", "");
    const peer_id stale = old.id;
    peers_.remove(old);
    EXPECT_EQ(peers_.find(stale), nullptr);
    peer_record& next = peers_.add(link_, "b", "");  // In the same slot.
    EXPECT_EQ(peers_.find(stale), nullptr);
    EXPECT_EQ(peers_.find(next.id), &next);
    EXPECT_EQ(peers_.find(peer_id{0}), nullptr);
    EXPECT_EQ(peers_.find(peer_id{~std::uint64_t{0}}), nullptr);
}

TEST_F(peer_table_test, an_address_finds_its_peer_until_it_is_forgotten) {
    peer_record& one = peers_.add(link_, "TCP://h:1", "tcp://h:1");
    EXPECT_EQ(peers_.find(std::string("tcp://h:1")), &one);
    peers_.forget_address(one);
    EXPECT_EQ(peers_.find(std::string("tcp://h:1")), nullptr);
    EXPECT_EQ(one.address, "TCP://h:1");
    peer_record& again = peers_.add(link_, "tcp://h:1", "tcp://h:1");
    EXPECT_EQ(peers_.find(std::string("tcp://h:1")), &again);
    peers_.forget_address(one);  // Already forgotten: must not remove the new entry.
    EXPECT_EQ(peers_.find(std::string("tcp://h:1")), &again);
}

TEST_F(peer_table_test, the_link_learns_whose_it_is) {
    peer_record& one = peers_.add(link_, "a", "");
    EXPECT_EQ(link_.peer, one.id);
    EXPECT_EQ(link_.record, &one);
}

// Ten thousand idle peers must fit in 64 KiB each, including the transport's buffers.
static_assert(sizeof(peer_record) <= 1024);

}  // namespace
}  // namespace amalgam::detail
