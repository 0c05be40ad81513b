// Allocations of a port per small message in steady state: none.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/fabric/transport.hpp>

#include "fabric/one_sided/device_port_testing.hpp"
#include "memory/memory.hpp"

namespace amalgam::memory {
namespace {

struct counted : completion {
    counted()
        : completion([](completion& self, status what, std::size_t) noexcept {
              auto& me = static_cast<counted&>(self);
              EXPECT_TRUE(what.ok());
              ++me.runs;
          }) {}
    int runs = 0;
};

/// Answers each message with one of the same length.
struct echo final : message_sink {
    explicit echo(port& where) : here(where) {}
    void on_message(message& got) noexcept override {
        const const_bytes bytes = got.bytes();
        EXPECT_NE(here.post_send(got.from(), got.tag(), gather(&bytes, 1), sent), posted::full);
    }
    port& here;
    counted sent;
};
struct counting final : message_sink {
    void on_message(message&) noexcept override { ++came; }
    int came = 0;
};

class steady_messages : public testing::TestWithParam<const char*> {};

TEST_P(steady_messages, take_no_memory) {
    const transport_registry all = transport_registry::native();
    const std::string where = GetParam();
    const bool named = where == "loop://";
    const std::unique_ptr<port> a = all.open(named ? where + "a" : where).value();
    const std::unique_ptr<port> b = all.open(named ? where + "b" : where).value();
    counting at_a;
    echo at_b(*b);
    a->set_sink(&at_a);
    b->set_sink(&at_b);
    const peer_id to = a->lookup(b->address()).value();
    const auto move = [&] {
        a->progress();
        b->progress();
    };
    std::vector<std::byte> text(1000), into(1000);
    for (const std::size_t length : {0u, 1u, 64u, 1000u}) {
        const const_bytes bytes = const_bytes(text).first(length);
        const auto round = [&] {
            const int before = at_a.came;
            counted sent;
            const posted how = a->post_send(to, 1, gather(&bytes, 1), sent);
            ASSERT_NE(how, posted::full);
            while (at_a.came == before || (how == posted::pending && sent.runs == 0))
                move();
        };
        const auto expected = [&] {
            counted sent, received;
            const posted how = a->post_send_expected(to, 7, gather(&bytes, 1), sent);
            ASSERT_NE(how, posted::full);
            peer_id from;
            struct asks final : message_sink {
                explicit asks(peer_id& into) : who(into) {}
                void on_message(message& got) noexcept override { who = got.from(); }
                peer_id& who;
            } sink(from);
            b->set_sink(&sink);
            counted asked;
            ASSERT_NE(a->post_send(to, 2, {}, asked), posted::full);
            while (!from)
                move();
            b->set_sink(&at_b);
            const posted taken = b->post_receive(from, 7, into, received);
            ASSERT_NE(taken, posted::full);
            while ((taken == posted::pending && received.runs == 0) ||
                   (how == posted::pending && sent.runs == 0))
                move();
        };
        for (int i = 0; i < 50; ++i) {
            round();
            expected();
        }
        const std::uint64_t before = allocations();
        for (int i = 0; i < 200; ++i)
            round();
        EXPECT_EQ(allocations(), before) << length << " bytes";
        const std::uint64_t between = allocations();
        for (int i = 0; i < 200; ++i)
            expected();
        EXPECT_EQ(allocations(), between) << length << " bytes that were expected";
    }
    a->set_sink(nullptr);
    b->set_sink(nullptr);
}

INSTANTIATE_TEST_SUITE_P(native, steady_messages,
                         testing::Values("loop://", "tcp://127.0.0.1:0", "shm://"));

struct counted_end final : completion {
    counted_end()
        : completion([](completion& self, status how, std::size_t) noexcept {
              static_cast<counted_end&>(self).over = how.ok();
          }) {}
    bool over = false;
};

TEST(steady_transfers, by_a_device_take_no_memory) {
    detail::memory_device::settings with_a, with_b;
    with_a.facts.piece_bytes = 100;
    const std::unique_ptr<port> a = detail::open_device_port(with_a);
    const std::unique_ptr<port> b = detail::open_device_port(with_b);
    const peer_id to = a->lookup(b->address()).value();
    shared_block theirs = b->allocate(1000).value(), mine = a->allocate(1000).value();
    const region shown = b->open_region(theirs.bytes(), access::read_write).value();
    const const_bytes from = mine.bytes();
    const mutable_bytes into = mine.bytes();
    const auto both = [&] {
        counted_end put, get;
        ASSERT_EQ(a->post_put(to, {&from, 1}, shown.key(), 0, put), posted::pending);
        ASSERT_EQ(a->post_get(to, {&into, 1}, shown.key(), 0, get), posted::pending);
        while (!put.over || !get.over) {
            a->progress();
            b->progress();
        }
    };
    for (int i = 0; i < 200; ++i)
        both();
    ASSERT_GT(with_a.copied_bytes, 100'000u);
    const std::uint64_t before = allocations();
    for (int i = 0; i < 200; ++i)
        both();
    EXPECT_EQ(allocations(), before);
}

}  // namespace
}  // namespace amalgam::memory
