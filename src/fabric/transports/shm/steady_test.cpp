// In steady state a port allocates no heap memory.
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "fabric/transports/shm/test_port.hpp"
#include "memory/memory.hpp"

namespace amalgam::detail {
namespace {

/// Counts messages and keeps nothing.
struct counter_sink final : message_sink {
    void on_message(message&) noexcept override { ++came; }
    std::uint64_t came = 0;
};

class shm_steady_state : public testing::TestWithParam<const char*> {};

TEST_P(shm_steady_state, takes_no_memory_for_messages_and_transfers) {
    shm_test_port a(GetParam()), b(GetParam());
    const peer_id to = a.reach(b);
    counter_sink sink;
    b.end().set_sink(&sink);
    std::vector<std::byte> memory(300000);
    shared_block block = b.end().allocate(300000).value();
    const region targets[] = {b.end().open_region(memory, access::read_write).value(),
                              b.end().open_region(block.bytes(), access::read_write).value()};
    std::size_t rounds = 0;
    std::vector<std::byte> here(300000);
    for (std::size_t bytes : {0u, 8u, 500u, 30000u, 40000u, 200000u}) {
        const const_bytes out = const_bytes(here).first(bytes);
        const mutable_bytes into = mutable_bytes(here).first(bytes);
        auto round = [&] {
            recorded sent, put, get;
            const region& target = targets[++rounds % 2];
            const std::uint64_t before = sink.came;
            const bool send_pends =
                a.end().post_send(to, 1, gather(&out, 1), sent) == posted::pending;
            const bool put_pends =
                a.end().post_put(to, gather(&out, 1), target.key(), 0, put) == posted::pending;
            const bool get_pends =
                a.end().post_get(to, scatter(&into, 1), target.key(), 0, get) == posted::pending;
            while (sink.came == before || (send_pends && sent.runs == 0) ||
                   (put_pends && put.runs == 0) || (get_pends && get.runs == 0)) {
                a.progress();
                b.progress();
            }
        };
        for (int i = 0; i < 30; ++i)
            round();
        const std::uint64_t before = memory::allocations();
        for (int i = 0; i < 100; ++i)
            round();
        EXPECT_EQ(memory::allocations(), before) << bytes << " bytes";
    }
}

INSTANTIATE_TEST_SUITE_P(shm, shm_steady_state,
                         testing::Values("shm://", "shm://?rma=blocks", "shm://?rma=ring"));

}  // namespace
}  // namespace amalgam::detail
