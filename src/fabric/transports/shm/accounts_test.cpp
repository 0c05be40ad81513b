// A connection that ends, is refused or is abandoned leaves nothing behind.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <deque>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "conformance/child_process.hpp"
#include "fabric/limits.hpp"
#include "fabric/transports/shm/port.hpp"
#include "fabric/transports/shm/raw_peer.hpp"
#include "fabric/transports/shm/test_port.hpp"

namespace amalgam::detail {
namespace {

using namespace std::chrono_literals;
using conformance::channel;
using conformance::child_process;

std::size_t lent_by(shm_test_port& port) {
    return static_cast<shm_port&>(port.end()).lent().taken();
}

/// Number of shared-memory mappings in this process; each connection has some.
std::size_t mappings() {
    std::ifstream maps("/proc/self/maps");
    std::size_t count = 0;
    for (std::string line; std::getline(maps, line);)
        count += line.find("memfd:amalgam-shm") != line.npos;
    return count;
}

/// A port, and a peer that reads nothing.
struct shm_accounts : testing::Test {
    shm_accounts() {
        greet(peer, here);
        peer.write(frame_kind::unexpected, 0, {});
        move_until({&here}, [&] { return !here.tags.empty(); });
    }
    posted send(std::size_t count, recorded& op) {
        const const_bytes& part = parts.emplace_back(const_bytes(bytes).first(count));
        return here.end().post_send(here.from, 1, gather(&part, 1), op);
    }
    /// Sends until no short message is taken.
    void fill_ring() {
        recorded short_one;
        while (send(8, short_one) == posted::done) {
        }
        EXPECT_EQ(here.end().open_operations(), 0u);
    }
    void take_all() { peer.take_all(); }

    shm_test_port here{"shm://"};
    shm_raw_peer peer{here.end().address()};
    std::vector<std::byte> bytes = std::vector<std::byte>(300'000, std::byte{1});
    std::deque<const_bytes> parts;  // Borrowed until the port is gone.
};

TEST_F(shm_accounts, connection_that_ends_gives_back_what_waits_and_what_is_half_sent) {
    std::deque<recorded> ops(12);
    for (recorded& op : ops)  // The first has begun, the others wait.
        ASSERT_EQ(send(bytes.size(), op), posted::pending);
    EXPECT_EQ(lent_by(here), ops.size());
    here.end().close(here.from);
    EXPECT_EQ(lent_by(here), 0u);
    move_until({&here}, [&] { return ops.back().runs > 0; });
    for (recorded& op : ops)
        EXPECT_EQ(op.runs, 1);
    EXPECT_EQ(here.end().open_operations(), 0u);
}

TEST_F(shm_accounts, sends_that_are_canceled_make_room_for_others) {
    fill_ring();
    recorded first;
    ASSERT_EQ(send(100'000, first), posted::pending);
    for (std::size_t i = 0; i < 3 * shm_sender::max_waiting; ++i) {
        recorded op;
        ASSERT_EQ(send(100'000, op), posted::pending) << "after " << i;
        here.end().cancel(op);
        move_until({&here}, [&] { return op.runs > 0; });
        ASSERT_TRUE(op.ended_with(errc::canceled));
        ASSERT_EQ(lent_by(here), 1u);
        parts.pop_back();
    }
    here.end().cancel(first);
    move_until({&here}, [&] { return first.runs > 0; });
    EXPECT_EQ(lent_by(here), 0u);
    // With an empty queue, a short message goes straight to the ring again.
    take_all();
    here.progress();
    recorded last;
    EXPECT_EQ(send(8, last), posted::done);
}

TEST_F(shm_accounts, no_more_wait_than_may) {
    fill_ring();
    std::deque<recorded> ops(shm_sender::max_waiting);
    for (recorded& op : ops)
        ASSERT_EQ(send(100'000, op), posted::pending);
    recorded one_more;
    EXPECT_EQ(send(100'000, one_more), posted::full);
    EXPECT_EQ(lent_by(here), ops.size());
    here.end().cancel(ops.front());
    EXPECT_EQ(send(100'000, one_more), posted::pending);
    here.end().close(here.from);
    move_until({&here}, [&] { return one_more.runs > 0; });
    EXPECT_EQ(lent_by(here), 0u);
}

TEST_F(shm_accounts, room_that_came_keeps_the_port_awake_once) {
    fill_ring();
    while (!here.end().prepare_to_sleep())
        here.progress();
    take_all();
    here.progress();
    EXPECT_FALSE(here.end().prepare_to_sleep()) << "who was refused would sleep, and there is room";
    recorded op;
    EXPECT_EQ(send(8, op), posted::done);
    here.progress();
    EXPECT_TRUE(here.end().prepare_to_sleep());
    here.progress();
}

TEST(shm_listener, who_greets_and_leaves_at_once_leaves_nothing) {
    shm_test_port here("shm://"), other("shm://");
    other.send(other.reach(here), 1, {});
    move_until({&here, &other}, [&] { return !here.tags.empty(); });
    const std::size_t before = mappings();
    for (int i = 0; i < 50; ++i) {
        {
            shm_raw_peer peer(here.end().address());
            peer.say(peer.proper(), peer.pair_memory(), peer.registrations_memory());
        }
        here.progress();
    }
    other.send(other.reach(here), 2, {});
    move_until({&here, &other}, [&] { return here.tags.size() == 2; });
    while (here.progress() > 0) {
    }
    EXPECT_EQ(mappings(), before);
}

TEST(shm_reaching, one_who_listens_and_never_answers_is_unreachable_in_time) {
    port_options impatient;
    impatient.silence_limit = 50ms;
    const std::string name = "deaf-" + std::to_string(random_u64());
    const unique_fd deaf = listen_at(name);
    ASSERT_TRUE(deaf);
    shm_test_port here("shm://", impatient);
    const peer_id to = here.end().lookup("shm://" + name).value();
    std::vector<std::byte> bytes(100'000);
    const const_bytes from(bytes);
    recorded op;
    ASSERT_EQ(here.end().post_send(to, 1, gather(&from, 1), op), posted::pending);
    // Asleep: the port itself must ensure that it wakes.
    sleep_until(here, [&] { return op.runs > 0; });
    EXPECT_TRUE(op.ended_with(errc::unreachable));
    EXPECT_EQ(op.what.native, ETIMEDOUT);
    move_until({&here}, [&] { return !here.losses.empty(); });
    EXPECT_EQ(lent_by(here), 0u);
}

TEST(shm_reaching, a_peer_killed_in_the_midst_of_a_copy_holds_no_region_up) {
    child_process writer([](channel& parent) {
        shm_raw_peer peer(parent.hear());
        peer.greet();
        peer.write(frame_kind::unexpected, 0, {});
        peer.ring();
        peer.words().touched.store(shm_touched::region(std::stoull(parent.hear()), true));
        peer.words().touching.fetch_add(1);
        parent.say("writing");
        parent.hear();
        return 0;
    });
    port_options patient;
    patient.silence_limit = 24h;
    shm_test_port here("shm://", patient);
    writer.line().say(here.end().address());
    move_until({&here}, [&] { return !here.tags.empty(); });
    std::vector<std::byte> memory(64);
    region target = here.end().open_region(memory, access::read_write).value();
    writer.line().say(std::to_string(target.key().region));
    EXPECT_EQ(writer.line().hear(), "writing");
    writer.kill();
    target = region();
    move_until({&here}, [&] { return !here.losses.empty(); });
}

}  // namespace
}  // namespace amalgam::detail
