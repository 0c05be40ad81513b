// A wire in the hands of somebody who records, repeats, sends back, changes, leaves out and moves
// packets.
#include "fabric/sealing/carrier.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "fabric/one_sided/memory_device_testing.hpp"
#include "fabric/port/port_testing.hpp"
#include "fabric/sealing/one_sided.hpp"
#include "fabric/sealing/wire_testing.hpp"
#include "memory/memory.hpp"

namespace amalgam::detail {
namespace {

class sealed_wire : public testing::Test {
protected:
    sealed_wire() {
        here_.open();
        there_.open();
    }
    void carry() {
        while (!here_.below->left.empty())
            there_.receive(here_.take());
    }
    void expect_ended(sealed_end& end, std::size_t after) {
        EXPECT_EQ(end.events.packets.size(), after) << "nothing of it may be taken";
        EXPECT_EQ(end.events.downs, std::vector<errc>{errc::disconnected});
        EXPECT_EQ(end.below->closes, 1);
        EXPECT_NE(end.carrier().explain().find("; 1 packets that were changed"), std::string::npos)
            << end.carrier().explain();
        // Nothing more is taken or told.
        end.receive(here_.below->tried.front());
        EXPECT_EQ(end.events.packets.size(), after);
        EXPECT_EQ(end.events.downs.size(), 1u);
        EXPECT_EQ(end.send("x"), posted::full);
    }

    sealed_end here_{1, 2}, there_{2, 1};
};

TEST_F(sealed_wire, that_only_passes_packets_on_is_not_noticed) {
    for (const char* each : {"one", "two", "three"})
        EXPECT_EQ(here_.send(each), posted::done);
    carry();
    EXPECT_EQ(there_.events.packets,
              (std::vector<packet_bytes_of>{bytes_of("one"), bytes_of("two"), bytes_of("three")}));
    EXPECT_TRUE(there_.events.downs.empty());
}

TEST_F(sealed_wire, shows_nothing_of_what_is_sent) {
    const std::string text(200, 's');
    here_.say(text);
    here_.say(text);
    for (const packet_bytes_of& each : here_.below->tried) {
        EXPECT_EQ(each.size(), text.size() + packet_key::tag_bytes);
        const auto like = bytes_of("ssssssss");
        EXPECT_EQ(std::search(each.begin(), each.end(), like.begin(), like.end()), each.end());
    }
    EXPECT_NE(here_.below->tried[0], here_.below->tried[1]);
}

TEST_F(sealed_wire, that_repeats_a_packet_has_it_taken_once) {
    here_.say("one");
    const auto packet = here_.take();
    there_.receive(packet);
    there_.receive(packet);
    expect_ended(there_, 1);
}

TEST_F(sealed_wire, that_changes_the_order_has_nothing_taken) {
    here_.say("one");
    here_.say("two");
    const auto first = here_.take(), second = here_.take();
    there_.receive(second);
    there_.receive(first);
    expect_ended(there_, 0);
}

TEST_F(sealed_wire, that_leaves_a_packet_out_has_nothing_taken_behind_it) {
    for (const char* each : {"one", "two", "three"})
        here_.say(each);
    there_.receive(here_.take());
    (void)here_.take();
    there_.receive(here_.take());
    expect_ended(there_, 1);
}

TEST_F(sealed_wire, that_sends_a_packet_back_has_nothing_taken) {
    here_.say("one");
    here_.receive(here_.take());
    expect_ended(here_, 0);
}

TEST_F(sealed_wire, that_puts_a_packet_of_another_connection_in_has_nothing_taken) {
    sealed_end other(5, 6);
    other.open();
    other.say("one");
    here_.say("one");
    there_.receive(other.take());
    expect_ended(there_, 0);
}

TEST_F(sealed_wire, that_cuts_or_lengthens_a_packet_has_nothing_taken) {
    here_.say("one");
    const auto packet = here_.take();
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{15}, std::size_t{16}, packet.size() - 1, packet.size() + 1,
          std::size_t{4096}, std::size_t{4097}, std::size_t{100'000}}) {
        sealed_end there(2, 1);
        there.open();
        auto changed = packet;
        changed.resize(size);
        there.receive(changed);
        EXPECT_TRUE(there.events.packets.empty()) << size;
        EXPECT_EQ(there.events.downs, std::vector<errc>{errc::disconnected}) << size;
    }
}

TEST_F(sealed_wire, that_plays_a_whole_connection_again_has_nothing_taken) {
    for (const char* each : {"one", "two"})
        here_.say(each);
    // Each connection has keys of its own.
    sealed_end again(2, 3);
    again.open();
    while (!here_.below->left.empty())
        again.receive(here_.take());
    EXPECT_TRUE(again.events.packets.empty());
    EXPECT_EQ(again.events.downs.size(), 1u);
}

// ---- what the carrier below does

TEST_F(sealed_wire, that_has_no_room_gets_the_same_packet_again_and_no_number_serves_two) {
    here_.below->answer = posted::full;
    EXPECT_EQ(here_.send("one"), posted::done) << "it was taken, and waits";
    EXPECT_EQ(here_.send("two"), posted::full);
    here_.wire().events->room(*here_.below);
    EXPECT_EQ(here_.events.rooms, 1) << "of the beginning: there is no more room";
    EXPECT_EQ(here_.send("something else than two"), posted::full);
    here_.below->answer = posted::done;
    here_.wire().events->room(*here_.below);
    EXPECT_EQ(here_.events.rooms, 2);
    for (const auto& each : here_.below->tried)
        EXPECT_EQ(each, here_.below->tried.front());
    EXPECT_EQ(here_.send("three"), posted::done);
    carry();
    EXPECT_EQ(there_.events.packets,
              (std::vector<packet_bytes_of>{bytes_of("one"), bytes_of("three")}));
}

TEST_F(sealed_wire, that_keeps_packets_gives_them_back_to_be_used_again) {
    here_.below->answer = posted::pending;
    for (int i = 0; i < 3; ++i)
        EXPECT_EQ(here_.send("lent"), posted::done);
    EXPECT_EQ(here_.below->held.size(), 3u);
    std::set<packet*> first(here_.below->held.begin(), here_.below->held.end());
    for (packet* each : std::exchange(here_.below->held, {}))
        here_.wire().events->returned(*each);
    for (int i = 0; i < 3; ++i)
        here_.say("lent");
    EXPECT_EQ(std::set<packet*>(here_.below->held.begin(), here_.below->held.end()), first);
}

TEST_F(sealed_wire, that_is_full_when_a_link_closes_is_asked_once_more) {
    here_.below->answer = posted::full;
    here_.say("one");
    here_.below->answer = posted::done;
    here_.link->close();
    EXPECT_EQ(here_.below->closes, 1);
    carry();
    EXPECT_EQ(there_.events.packets.size(), 1u);
    here_.link->close();
    EXPECT_EQ(here_.below->closes, 1);
}

TEST_F(sealed_wire, that_is_lost_tells_once_and_takes_nothing_more) {
    here_.below->answer = posted::full;
    here_.say("one");
    here_.wire().events->down(*here_.below, {errc::unreachable});
    EXPECT_EQ(here_.events.downs, std::vector<errc>{errc::unreachable});
    EXPECT_EQ(here_.send("two"), posted::full);
    here_.carrier().release(*here_.link);
    EXPECT_EQ(here_.wire().released, 1);
}

TEST(sealed_carrier, sends_nothing_before_the_ends_are_introduced) {
    sealed_end here(1, 2);
    EXPECT_EQ(here.send("one"), posted::full);
    EXPECT_TRUE(here.below->tried.empty());
    EXPECT_EQ(here.carrier().who(*here.link), identity{});
    here.open();
    EXPECT_EQ(here.events.rooms, 1);
    EXPECT_EQ(here.send("one"), posted::done);
    EXPECT_EQ(here.carrier().who(*here.link).name, "node7");
}

TEST(sealed_carrier, takes_a_packet_that_arrives_before_the_first_room) {
    sealed_end here(1, 2), there(2, 1);
    here.open();
    here.say("one");
    there.receive(here.take());
    EXPECT_EQ(there.events.packets.size(), 1u);
}

TEST(sealed_carrier, ends_a_connection_of_which_there_are_no_secrets) {
    sealed_end here(1, 2);
    here.below->secrets.reset();
    here.open();
    EXPECT_EQ(here.events.downs, std::vector<errc>{errc::disconnected});
    EXPECT_EQ(here.events.rooms, 0);
}

TEST(sealed_carrier, ends_a_connection_whose_ends_have_no_cipher_in_common) {
    sealed_end here(1, 2, 0);
    here.open();
    EXPECT_EQ(here.events.downs, std::vector<errc>{errc::mismatch});
    EXPECT_EQ(here.send("one"), posted::full);
}

TEST(sealed_carrier, talks_to_a_machine_without_instructions_for_aes) {
    const auto less = static_cast<std::uint8_t>(packet_cipher::xchacha20_poly1305);
    sealed_end here(1, 2, less), there(2, 1, less);
    here.open();
    there.open();
    here.say("one");
    there.receive(here.take());
    EXPECT_EQ(there.events.packets.size(), 1u);
}

TEST(sealed_carrier, tells_what_was_copied_of_transfers_that_are_not_sealed) {
    memory_device::settings with;
    memory_device below(with);
    const sealed_one_sided sealed(below);
    with.through_own_memory = 77;
    EXPECT_EQ(sealed.copied_bytes(), 77u);
}

TEST(sealed_carrier, whom_its_port_has_no_memory_for_is_let_go) {
    sealed_end here(1, 2);
    wired_carrier::link newcomer;
    here.events.no_memory = true;
    EXPECT_FALSE(here.wire().events->accepted(newcomer, "wire://caller"));
    EXPECT_EQ(newcomer.user, nullptr);
    here.events.no_memory = false;
    EXPECT_TRUE(here.wire().events->accepted(newcomer, "wire://caller"));
    here.carrier().release(*here.events.links.back());
}

TEST_F(sealed_wire, that_had_no_memory_for_a_packet_asks_for_it_again) {
    const int before = here_.events.rooms;
    packet_bytes_of one(1);
    {
        const memory::failing next(1);
        EXPECT_EQ(here_.send(std::move(one)), posted::full);
        ASSERT_TRUE(memory::failing::struck());
    }
    EXPECT_FALSE(here_.carrier().arm()) << "there is something to do";
    EXPECT_EQ(here_.carrier().progress(1), 1u);
    EXPECT_EQ(here_.events.rooms, before + 1);
    here_.say("now");
    there_.receive(here_.take());
    EXPECT_EQ(there_.events.packets, std::vector<packet_bytes_of>{bytes_of("now")});
}

TEST_F(sealed_wire, costs_no_allocation_for_a_packet) {
    const packet_bytes_of bytes = bytes_of("text");
    packet_bytes_of memory = bytes;
    packet one;
    one.data = memory.data();
    one.bytes = static_cast<std::uint32_t>(memory.size());
    here_.below->tried.reserve(4000);
    const auto pass = [&] {
        for (int i = 0; i < 100; ++i)
            EXPECT_EQ(here_.link->send(one), posted::done);
    };
    pass();
    std::vector<packet_bytes_of> all(here_.below->left.begin(), here_.below->left.end());
    there_.events.packets.reserve(all.size());
    const std::uint64_t before = memory::allocations();
    for (const auto& each : all)
        there_.receive(each);
    // The test's own list has one for each packet.
    EXPECT_EQ(memory::allocations() - before, all.size());
    const std::uint64_t sent_before = memory::allocations();
    here_.below->answer = posted::full;
    EXPECT_EQ(here_.link->send(one), posted::done);
    EXPECT_EQ(memory::allocations() - sent_before, 1u) << "the test's own copy";
}

}  // namespace
}  // namespace amalgam::detail
