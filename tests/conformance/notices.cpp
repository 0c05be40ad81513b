#include <algorithm>
#include <vector>

#include "conformance/transport_suite.hpp"

namespace amalgam::conformance {
namespace {

#define SKIP_WITHOUT_NOTICES(at)                       \
    if ((at).end().can().atomics == atomic_mode::none) \
    GTEST_SKIP() << "the plug-in is older than notified puts"

void expect_told(const put_notice& told, peer_id from, const remote_key& key, std::uint64_t offset,
                 std::uint64_t bytes, std::uint64_t value) {
    EXPECT_EQ(told.from, from);
    EXPECT_EQ(told.region, key.region);
    EXPECT_EQ(told.offset, offset);
    EXPECT_EQ(told.bytes, bytes);
    EXPECT_EQ(told.value, value);
}

TEST_P(transport_suite, notice_of_a_put_of_every_size_comes_once_after_its_bytes) {
    connection over = connected_pair();
    SKIP_WITHOUT_NOTICES(over.a);
    auto sizes = message_sizes();
    const std::size_t most = std::min<std::size_t>(sizes.back(), std::size_t{3} << 20);
    const_bytes source = patterned(most, 1);
    mutable_bytes plain = zeroed(most + 2);
    const shared_block block = over.b.end().allocate(most + 2).value();
    for (mutable_bytes far : {plain, block.bytes()}) {
        region target = over.b.end().open_region(far, access::read_write).value();
        for (std::size_t bytes : sizes) {
            if (bytes > most) break;
            std::fill_n(far.begin(), bytes + 2, std::byte{0});
            int told = 0;
            over.b.on_notice = [&](const put_notice& what) {
                ++told;
                expect_told(what, over.a_at_b, target.key(), 1, bytes, ~bytes);
                EXPECT_TRUE(is_pattern(far.subspan(1, bytes), 1)) << bytes;
            };
            operation& op = complete(over.a, request::put_notify(over.b_at_a, {source.first(bytes)},
                                                                 target.key(), 1, ~bytes));
            ASSERT_EQ(op.code(), errc::ok) << bytes;
            EXPECT_EQ(op.bytes(), bytes);
            flush(over);
            EXPECT_EQ(told, 1) << bytes;
            EXPECT_EQ(far[0], std::byte{0});
            EXPECT_EQ(far[bytes + 1], std::byte{0});
        }
    }
    over.b.on_notice = nullptr;
}

TEST_P(transport_suite, notices_come_once_each_in_order_behind_the_puts_before_them) {
    connection over = connected_pair();
    SKIP_WITHOUT_NOTICES(over.a);
    constexpr std::size_t sizes[] = {8, 3000, 300'000, 0, 64, 20'000, 9000};
    const std::size_t count = is_brief() ? 60 : 200;
    constexpr std::size_t step = 300'000;
    const std::size_t slots = 20;
    mutable_bytes far = zeroed(slots * step);
    const shared_block block = over.b.end().allocate(far.size()).value();
    for (mutable_bytes memory : {far, block.bytes()}) {
        region target = over.b.end().open_region(memory, access::read_write).value();
        std::uint64_t heard = 0;
        over.b.on_notice = [&](const put_notice& what) {
            EXPECT_EQ(what.value, heard++);
            // The put before it told nothing itself.
            const_bytes before = memory.subspan(what.value % slots * step, 8);
            EXPECT_GE(load_le<std::uint64_t>(before.data()), what.value);
        };
        mutable_bytes numbers = zeroed(8 * count);
        std::vector<operation*> ops;
        for (std::uint64_t i = 0; i < count; ++i) {
            mutable_bytes number = numbers.subspan(8 * i, 8);
            store_le(number.data(), i);
            const std::uint64_t at = i % slots * step;
            ops.push_back(&start(over.a, request::put(over.b_at_a, {number}, target.key(), at)));
            const std::size_t bytes = std::min(sizes[i % std::size(sizes)], step - 8);
            ops.push_back(&start(over.a, request::put_notify(over.b_at_a, {patterned(bytes, i)},
                                                             target.key(), at + 8, i)));
        }
        finish(ops);
        for (operation* op : ops)
            EXPECT_EQ(op->code(), errc::ok);
        flush(over);
        EXPECT_EQ(heard, count);
    }
    over.b.on_notice = nullptr;
}

TEST_P(transport_suite, notice_of_a_canceled_put_is_told_with_all_bytes_or_not_at_all) {
    connection over = connected_pair();
    SKIP_WITHOUT_NOTICES(over.a);
    constexpr std::size_t piece = std::size_t{256} << 10;
    for (const std::size_t pieces : {0, 1, 2, 5}) {
        // The last piece is so short that it is copied, while those before it are borrowed.
        const std::size_t bytes = pieces * piece + 100;
        mutable_bytes far = zeroed(bytes);
        region target = over.b.end().open_region(far, access::read_write).value();
        int told = 0;
        over.b.on_notice = [&](const put_notice&) { ++told; };
        operation& op = start(
            over.a, request::put_notify(over.b_at_a, {patterned(bytes, 1)}, target.key(), 0, 1));
        over.a.cancel(op);
        finish({&op});
        flush(over);
        EXPECT_EQ(told, op.code() == errc::ok ? 1 : 0) << pieces;
        EXPECT_TRUE(told == 0 || is_pattern(far, 1)) << pieces;
    }
    over.b.on_notice = nullptr;
}

TEST_P(transport_suite, notices_of_several_peers_name_who_wrote) {
    node& b = open();
    SKIP_WITHOUT_NOTICES(b);
    region target = b.end().open_region(zeroed(4096), access::write).value();
    std::vector<connection> all;
    for (int i = 0; i < 4; ++i)
        all.push_back(connect(open(), b));
    for (const connection& each : all)
        ASSERT_EQ(complete(each.a, request::put_notify(each.b_at_a, {patterned(100, 1)},
                                                       target.key(), 5, each.a_at_b.value))
                      .code(),
                  errc::ok);
    until("all notices", [&] { return b.notices.size() == all.size(); });
    for (const put_notice& told : b.notices)
        EXPECT_EQ(told.from.value, told.value);
}

TEST_P(transport_suite, put_that_fails_tells_nothing) {
    connection over = connected_pair();
    SKIP_WITHOUT_NOTICES(over.a);
    mutable_bytes far = zeroed(1 << 20);
    region whole = over.b.end().open_region(far, access::read_write).value();
    region readable = over.b.end().open_region(far, access::read).value();
    const remote_key closed = over.b.end().open_region(far, access::read_write).value().key();
    remote_key forged = whole.key();
    forged.secret ^= 1;
    remote_key longer = whole.key();
    longer.bytes += 1;
    const const_bytes large = patterned(1 << 20, 1);
    for (std::size_t bytes : {0u, 8u, 1u << 20}) {
        const std::uint64_t end = far.size() - bytes;
        for (auto [key, offset] : {std::pair{readable.key(), std::uint64_t{0}},
                                   {closed, 0},
                                   {forged, 0},
                                   {longer, end + 1},
                                   {whole.key(), end + 1},
                                   {whole.key(), ~std::uint64_t{0}}}) {
            operation& op = complete(
                over.a, request::put_notify(over.b_at_a, {large.first(bytes)}, key, offset, 1));
            EXPECT_EQ(op.how(), posted::pending);
            EXPECT_EQ(op.code(), errc::denied);
        }
    }
    flush(over);
    EXPECT_TRUE(over.b.notices.empty());
    EXPECT_TRUE(is_all(far, std::byte{0}));
    // And those after it tell.
    EXPECT_EQ(complete(over.a, request::put_notify(over.b_at_a, {large}, whole.key(), 0, 2)).code(),
              errc::ok);
    flush(over);
    ASSERT_EQ(over.b.notices.size(), 1u);
    EXPECT_EQ(over.b.notices[0].value, 2u);
}

TEST_P(transport_suite, put_into_a_region_that_closes_meanwhile_tells_exactly_if_it_is_ok) {
    connection over = connected_pair();
    SKIP_WITHOUT_NOTICES(over.a);
    const std::size_t bytes = std::size_t{is_brief() ? 1u : 4u} << 20;
    const_bytes source = patterned(bytes, 1);
    mutable_bytes far = zeroed(bytes);
    for (int after : {0, 1, 2, 3, 8, 20, 50, 100}) {
        SCOPED_TRACE(after);
        region target = over.b.end().open_region(far, access::write).value();
        operation& op =
            start(over.a, request::put_notify(over.b_at_a, {source}, target.key(), 0, 9));
        for (int i = 0; i < after; ++i) {
            over.a.progress(1);
            over.b.progress(1);
        }
        target = region();
        finish(op);
        flush(over);
        EXPECT_TRUE(op.code() == errc::ok || op.code() == errc::denied);
        EXPECT_EQ(over.b.notices.size(), op.code() == errc::ok ? 1u : 0u);
        over.b.notices.clear();
    }
}

TEST_P(transport_suite, notices_wait_for_a_sink_in_order) {
    connection over = connected_pair();
    SKIP_WITHOUT_NOTICES(over.a);
    region target = over.b.end().open_region(zeroed(4096), access::write).value();
    over.b.be_deaf();
    std::vector<operation*> ops;
    for (std::uint64_t i = 0; i < 50; ++i)
        ops.push_back(&start(over.a, request::put_notify(over.b_at_a, {patterned(8 * (i % 5), i)},
                                                         target.key(), i, i)));
    finish(ops);
    EXPECT_TRUE(over.b.notices.empty());
    const std::uint64_t key = target.key().region;
    target = region();
    over.b.listen();
    until("all notices", [&] { return over.b.notices.size() == 50; });
    for (std::uint64_t i = 0; i < 50; ++i) {
        EXPECT_EQ(over.b.notices[i].value, i);
        EXPECT_EQ(over.b.notices[i].offset, i);
        EXPECT_EQ(over.b.notices[i].bytes, 8 * (i % 5));
        EXPECT_EQ(over.b.notices[i].region, key);
        EXPECT_EQ(over.b.notices[i].from, over.a_at_b);
    }
    EXPECT_EQ(over.b.end().usage().queued_bytes, 0u);
}

TEST_P(transport_suite, who_hears_of_a_put_may_post_close_the_region_and_the_peer) {
    node &a = open(), &b = open();
    SKIP_WITHOUT_NOTICES(a);
    for (int what : {0, 1, 2}) {
        for (std::size_t bytes : {8u, 1u << 20}) {
            connection over = connect(a, b);
            region target = b.end().open_region(zeroed(1 << 20), access::read_write).value();
            int told = 0;
            b.on_notice = [&](const put_notice& one) {
                ++told;
                if (what == 0)
                    EXPECT_FALSE(b.try_post(request::send(one.from, 1, {})).refused());
                else if (what == 1)
                    target = region();
                else
                    b.close(one.from);
            };
            operation& op = complete(
                a, request::put_notify(over.b_at_a, {patterned(bytes, 1)}, target.key(), 0, 1));
            until("the notice", [&] { return told == 1; });
            if (what == 2) {
                EXPECT_TRUE(op.code() == errc::ok || op.code() == errc::disconnected);
                until("the loss", [&] { return a.has_lost(over.b_at_a); });
            } else {
                EXPECT_EQ(op.code(), errc::ok);
            }
            if (what == 0) {
                EXPECT_EQ(next_arrival(a).tag, 1u);
            }
            b.on_notice = nullptr;
        }
    }
}

TEST_P(transport_suite, notified_puts_behind_a_full_connection_tell_of_their_own_bytes) {
    connection over = connected_pair();
    SKIP_WITHOUT_NOTICES(over.a);
    constexpr std::size_t count = 40, step = 8300;
    auto size_of = [](std::size_t i) { return 8100 + 3 * i; };
    const const_bytes filler = patterned(1 << 20, 999);
    mutable_bytes far = zeroed(count * step);
    region target = over.b.end().open_region(far, access::read_write).value();
    std::uint64_t heard = 0;
    over.b.on_notice = [&](const put_notice& what) {
        EXPECT_EQ(what.value, heard++);
        EXPECT_TRUE(is_pattern(far.subspan(what.offset, what.bytes), what.value));
    };
    std::vector<operation*> ops;
    for (std::size_t i = 0; i < 16; ++i)
        ops.push_back(&start(over.a, request::send(over.b_at_a, 1, filler)));
    for (std::size_t i = 0; i < count; ++i)
        ops.push_back(&start(over.a, request::put_notify(over.b_at_a, {patterned(size_of(i), i)},
                                                         target.key(), i * step, i)));
    finish(ops);
    for (operation* op : ops)
        EXPECT_EQ(op->code(), errc::ok);
    flush(over);
    EXPECT_EQ(heard, count);
    over.b.on_notice = nullptr;
}

}  // namespace
}  // namespace amalgam::conformance
