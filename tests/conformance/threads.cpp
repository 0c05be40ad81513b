#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include <poll.h>

#include "conformance/transport_suite.hpp"

namespace amalgam::conformance {
namespace {

/// Each port runs in its own thread, and sleeps when idle. `more` posts what there is to post, and
/// returns false if it could continue at once.
void run(node& at, const std::function<bool()>& more, const std::function<bool()>& reached) {
    while (!reached()) {
        bool may_sleep = more();
        // Operations posted by `more` may have completed at once: then nothing is left to wake us.
        if (at.progress() != 0 || !may_sleep || reached() || !at.end().prepare_to_sleep()) continue;
        pollfd handle{at.end().wait_handle(), POLLIN, 0};
        if (::poll(&handle, 1, static_cast<int>(patience().count())) == 0) {
            ADD_FAILURE() << "nothing woke the sleeper";
            return;
        }
    }
}

TEST_P(transport_suite, ports_in_two_threads_wake_each_other) {
    connection over = connected_pair();
    if (over.a.driven()) GTEST_SKIP() << "its ports are driven in virtual time";
    std::uint64_t rounds = is_brief() ? 1000 : 10000;
    std::thread far([&] {
        std::uint64_t turns = 0;
        over.b.on_arrival = [&](message& got) {
            ++turns;
            over.b.try_post(request::send(got.from(), got.tag(), {}));
        };
        run(
            over.b, [] { return true; }, [&] { return turns == rounds; });
        while (over.b.progress() != 0) {
        }
    });
    std::uint64_t turns = 0;
    std::uint64_t asked = 0;
    over.a.on_arrival = [&](message& got) { EXPECT_EQ(got.tag(), turns++); };
    auto ask_next = [&] {
        if (asked == turns && asked < rounds &&
            !over.a.try_post(request::send(over.b_at_a, asked, {})).refused())
            ++asked;
        return true;
    };
    run(over.a, ask_next, [&] { return turns == rounds; });
    far.join();
}

TEST_P(transport_suite, any_thread_takes_and_frees_blocks_and_asks_for_usage_meanwhile) {
    connection over = connected_pair();
    if (over.a.driven()) GTEST_SKIP() << "its ports are driven in virtual time";
    std::atomic<bool> enough{false};
    std::atomic<std::uint64_t> turns{0};
    std::vector<std::thread> others;
    for (int t = 0; t < 3; ++t) {
        others.emplace_back([&, t] {
            std::uint64_t mine = 0;
            while (!enough || mine < 10) {
                const std::size_t bytes = std::size_t{1000} << (mine % 8);
                const shared_block block = over.a.end().allocate(bytes).value();
                const auto seed = static_cast<std::uint64_t>(t) * 1000 + mine;
                fill_pattern(block.bytes(), seed);
                EXPECT_EQ(over.a.end().usage().evicted, 0u);
                EXPECT_EQ(over.b.end().usage().evicted, 0u);
                EXPECT_TRUE(is_pattern(block.bytes(), seed));
                ++mine;
                ++turns;
            }
        });
    }
    const_bytes bytes = patterned(50'000, 9);
    mutable_bytes far_memory = zeroed(50'000);
    const region target = over.b.end().open_region(far_memory, access::read_write).value();
    for (int round = 0; round < 50 || turns < 100; ++round) {
        if (round < 20) start(over.a, request::send(over.b_at_a, 1, bytes));
        ASSERT_EQ(complete(over.a, request::put(over.b_at_a, {bytes}, target.key(), 0)).code(),
                  errc::ok);
    }
    flush(over);
    enough = true;
    for (std::thread& each : others)
        each.join();
    EXPECT_TRUE(is_pattern(far_memory, 9));
}

TEST_P(transport_suite, ports_in_two_threads_stream_and_transfer_at_once) {
    connection over = connected_pair();
    if (over.a.driven()) GTEST_SKIP() << "its ports are driven in virtual time";
    std::uint64_t count = is_brief() ? 3000 : 30000;
    constexpr std::size_t sizes[] = {8, 0, 64, 3000, 20, 100000};
    const_bytes bytes = patterned(100000, 1);
    mutable_bytes far_memory = zeroed(200000);
    mutable_bytes near_memory = zeroed(200000);
    region target = over.b.end().open_region(far_memory, access::read_write).value();
    const_bytes source = patterned(200000, 2);
    remote_key key = target.key();

    std::atomic<bool> far_is_done = false;
    std::thread far([&] {
        std::uint64_t came = 0;
        bool last_came = false;
        over.b.on_arrival = [&](message& got) {
            if (got.tag() == ~0ull) {
                last_came = true;
                return;
            }
            EXPECT_EQ(got.tag(), came++);
            EXPECT_TRUE(is_pattern(got.bytes(), 1));
        };
        run(
            over.b, [] { return true; }, [&] { return last_came; });
        EXPECT_EQ(came, count);
        far_is_done = true;
    });
    std::uint64_t sent = 0;
    operation* refused = nullptr;
    std::vector<operation*> transfers;
    auto send_more = [&] {
        for (int burst = 0; burst < 50 && sent < count; ++burst) {
            if (refused == nullptr) {
                operation& op = over.a.try_post(
                    request::send(over.b_at_a, sent, bytes.first(sizes[sent % std::size(sizes)])));
                refused = op.refused() ? &op : nullptr;
            } else if (refused->post() != posted::full) {
                refused = nullptr;
            }
            if (refused != nullptr) return true;
            ++sent;
        }
        if (transfers.size() < 40) {
            operation& op = over.a.try_post(transfers.size() % 2 == 0
                                                ? request::put(over.b_at_a, {source}, key, 0)
                                                : request::get(over.b_at_a, {near_memory}, key, 0));
            if (!op.refused()) transfers.push_back(&op);
        }
        return sent == count && transfers.size() == 40;
    };
    run(over.a, send_more,
        [&] { return sent == count && transfers.size() == 40 && over.a.open_operations() == 0; });
    for (operation* op : transfers)
        EXPECT_EQ(op->code(), errc::ok);
    operation* last = &over.a.try_post(request::send(over.b_at_a, ~0ull, {}));
    auto send_last = [&] {
        if (last->refused()) (void)last->post();
        return true;
    };
    run(over.a, send_last, [&] { return last->over(); });
    // Copied bytes may still be in flight.
    while (!far_is_done) {
        pollfd handle{over.a.end().wait_handle(), POLLIN, 0};
        if (over.a.progress() == 0) ::poll(&handle, 1, 1);
    }
    far.join();
    EXPECT_TRUE(is_pattern(near_memory, 2));
}

}  // namespace
}  // namespace amalgam::conformance
