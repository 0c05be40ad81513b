#include <algorithm>
#include <set>
#include <vector>

#include <amalgam/core/random.hpp>

#include "conformance/transport_suite.hpp"

namespace amalgam::conformance {
namespace {

/// Cuts `whole` into pieces of these lengths, with a gap of `gap` bytes after each, so that no two
/// pieces touch.
template <typename Bytes>
std::vector<Bytes> pieces_of(Bytes whole, const std::vector<std::size_t>& lengths,
                             std::size_t gap) {
    std::vector<Bytes> pieces;
    std::size_t at = 0;
    for (std::size_t length : lengths) {
        pieces.push_back(whole.subspan(at, length));
        at += length + gap;
    }
    return pieces;
}

std::size_t sum(const std::vector<std::size_t>& lengths) {
    std::size_t all = 0;
    for (std::size_t length : lengths)
        all += length;
    return all;
}

template <typename Bytes>
std::size_t total(const std::vector<Bytes>& pieces) {
    std::size_t all = 0;
    for (const Bytes& piece : pieces)
        all += piece.size();
    return all;
}

/// `bytes` bytes from `offset` of the logical range formed by the pieces.
template <typename Bytes>
std::vector<Bytes> cut(const std::vector<Bytes>& pieces, std::size_t offset, std::size_t bytes) {
    std::vector<Bytes> taken;
    for (Bytes piece : pieces) {
        std::size_t skip = std::min(offset, piece.size());
        std::size_t now = std::min(bytes, piece.size() - skip);
        offset -= skip;
        bytes -= now;
        if (now != 0) taken.push_back(piece.subspan(skip, now));
    }
    return taken;
}

void fill(const std::vector<mutable_bytes>& pieces, std::uint64_t seed) {
    std::uint64_t at = 0;
    for (mutable_bytes piece : pieces) {
        fill_pattern(piece, seed, at);
        at += piece.size();
    }
}

template <typename Bytes>
testing::AssertionResult hold(const std::vector<Bytes>& pieces, std::uint64_t seed,
                              std::uint64_t from = 0) {
    for (Bytes piece : pieces) {
        if (auto found = is_pattern(piece, seed, from); !found) return found;
        from += piece.size();
    }
    return testing::AssertionSuccess();
}

std::vector<const_bytes> constant(const std::vector<mutable_bytes>& pieces) {
    return {pieces.begin(), pieces.end()};
}

constexpr std::size_t gap = 24;

TEST_P(transport_suite, put_and_get_of_every_size_move_exactly_their_bytes) {
    connection over = connected_pair();
    auto sizes = message_sizes();
    std::size_t most = sizes.back();
    const_bytes source = patterned(most, 1);
    mutable_bytes far = zeroed(most + 2);
    mutable_bytes near = zeroed(most + 1);
    region target = over.b.end().open_region(far, access::read_write).value();
    for (std::size_t bytes : sizes) {
        std::fill_n(far.begin(), std::min(bytes + 2, far.size()), std::byte{0});
        std::fill_n(near.begin(), bytes + 1, std::byte{0});
        operation& put =
            complete(over.a, request::put(over.b_at_a, {source.first(bytes)}, target.key(), 1));
        ASSERT_EQ(put.code(), errc::ok) << bytes;
        EXPECT_EQ(put.bytes(), bytes);
        ASSERT_TRUE(is_pattern(far.subspan(1, bytes), 1)) << bytes;
        EXPECT_EQ(far[0], std::byte{0});
        EXPECT_EQ(far[bytes + 1], std::byte{0});
        operation& get =
            complete(over.a, request::get(over.b_at_a, {near.first(bytes)}, target.key(), 1));
        ASSERT_EQ(get.code(), errc::ok) << bytes;
        EXPECT_EQ(get.bytes(), bytes);
        ASSERT_TRUE(is_pattern(near.first(bytes), 1)) << bytes;
        EXPECT_EQ(near[bytes], std::byte{0});
    }
}

TEST_P(transport_suite, small_puts_posted_before_the_peer_was_reached_write_their_own_bytes) {
    node &a = open(), &b = open();
    mutable_bytes far = zeroed(1 << 16);
    region target = b.end().open_region(far, access::write).value();
    peer_id to_b = a.end().lookup(b.end().address()).value();
    constexpr std::size_t step = 10'000;
    std::vector<std::size_t> sizes{1, 1000, 8000, 8192, 3};
    std::vector<operation*> ops;
    for (std::size_t i = 0; i < sizes.size(); ++i)
        ops.push_back(
            &start(a, request::put(to_b, {patterned(sizes[i], i)}, target.key(), i * step)));
    finish(ops);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        EXPECT_EQ(ops[i]->code(), errc::ok) << sizes[i];
        EXPECT_TRUE(is_pattern(far.subspan(i * step, sizes[i]), i)) << sizes[i];
    }
}

// A full connection queues transfers in different ways depending on their length; each must still
// move its own bytes.
TEST_P(transport_suite, transfers_behind_a_full_connection_move_their_own_bytes) {
    connection over = connected_pair();
    constexpr std::size_t count = 40, step = 8300;
    auto size_of = [](std::size_t i) { return 8130 + 2 * i; };
    const const_bytes filler = patterned(1 << 20, 999);
    mutable_bytes far = zeroed(count * step), back = zeroed(count * step);
    region target = over.b.end().open_region(far, access::read_write).value();
    std::vector<operation*> ops;
    auto fill_up = [&](node& from, peer_id to) {
        for (std::size_t i = 0; i < 16; ++i)
            ops.push_back(&start(from, request::send(to, 1, filler)));
    };

    fill_up(over.a, over.b_at_a);
    for (std::size_t i = 0; i < count; ++i)
        ops.push_back(&start(
            over.a, request::put(over.b_at_a, {patterned(size_of(i), i)}, target.key(), i * step)));
    finish(ops);
    for (std::size_t i = 0; i < count; ++i)
        ASSERT_TRUE(is_pattern(far.subspan(i * step, size_of(i)), i)) << size_of(i);

    fill_up(over.b, over.a_at_b);
    for (std::size_t i = 0; i < count; ++i)
        ops.push_back(&start(over.a, request::get(over.b_at_a, {back.subspan(i * step, size_of(i))},
                                                  target.key(), i * step)));
    if (!over.b.driven())
        while (over.b.progress() != 0) {
        }  // It answers, but the other side does not read yet.
    finish(ops);
    for (std::size_t i = 0; i < count; ++i)
        ASSERT_TRUE(is_pattern(back.subspan(i * step, size_of(i)), i)) << size_of(i);
    for (operation* op : ops)
        EXPECT_EQ(op->code(), errc::ok);
}

TEST_P(transport_suite, put_is_visible_at_the_target_when_it_completes) {
    connection over = connected_pair();
    mutable_bytes far = zeroed(1 << 20);
    region target = over.b.end().open_region(far, access::write).value();
    for (std::size_t bytes : {8u, 5000u, 1u << 20}) {
        operation& op =
            start(over.a, request::put(over.b_at_a, {patterned(bytes, bytes)}, target.key(), 0));
        bool seen = op.how() == posted::done;
        if (seen) {
            EXPECT_TRUE(is_pattern(far.first(bytes), bytes));
        }
        op.then = [&](operation&) {
            seen = true;
            EXPECT_TRUE(is_pattern(far.first(bytes), bytes)) << "seen inside the completion";
        };
        finish(op);
        EXPECT_TRUE(seen);
    }
}

TEST_P(transport_suite, every_offset_and_length_around_segment_borders_is_right_at_both_ends) {
    connection over = connected_pair();
    const std::vector<std::size_t> far_lengths{1, 7, 64, 0, 300, 4096, 3};
    const std::vector<std::size_t> near_lengths{3, 100, 1, 0, 4000, 500};
    std::size_t far_bytes = sum(far_lengths);
    mutable_bytes far_memory = zeroed(far_bytes + gap * far_lengths.size());
    mutable_bytes near_memory = zeroed(sum(near_lengths) + gap * near_lengths.size());
    auto far = pieces_of(far_memory, far_lengths, gap);
    auto near = pieces_of(near_memory, near_lengths, gap);
    region target = over.b.end().open_region(scatter(far), access::read_write).value();
    EXPECT_EQ(target.bytes(), far_bytes);

    std::set<std::size_t> borders;
    std::size_t at = 0;
    for (std::size_t length : far_lengths) {
        for (std::size_t near_it : {at - 1, at, at + 1})
            if (near_it <= far_bytes) borders.insert(near_it);
        at += length;
    }
    borders.insert({far_bytes - 1, far_bytes});
    std::uint64_t seed = 0;
    for (std::size_t begin : borders) {
        for (std::size_t end : borders) {
            if (end < begin) continue;
            SCOPED_TRACE(std::to_string(begin) + " to " + std::to_string(end));
            std::size_t bytes = end - begin;
            ++seed;
            std::fill(far_memory.begin(), far_memory.end(), std::byte{0});
            std::fill(near_memory.begin(), near_memory.end(), std::byte{0});
            auto ours = cut(near, 0, bytes);
            fill(ours, seed);
            operation& put =
                complete(over.a, request::put(over.b_at_a, constant(ours), target.key(), begin));
            ASSERT_EQ(put.code(), errc::ok);
            ASSERT_TRUE(hold(cut(far, begin, bytes), seed));
            // Only those bytes have changed: with them cleared, all is as before.
            for (mutable_bytes piece : cut(far, begin, bytes))
                std::fill(piece.begin(), piece.end(), std::byte{0});
            ASSERT_TRUE(is_all(far_memory, std::byte{0}));

            fill(cut(far, begin, bytes), seed + 1000000);
            std::fill(near_memory.begin(), near_memory.end(), std::byte{0});
            operation& get = complete(over.a, request::get(over.b_at_a, ours, target.key(), begin));
            ASSERT_EQ(get.code(), errc::ok);
            ASSERT_TRUE(hold(ours, seed + 1000000));
            for (mutable_bytes piece : ours)
                std::fill(piece.begin(), piece.end(), std::byte{0});
            ASSERT_TRUE(is_all(near_memory, std::byte{0}));
        }
    }
}

TEST_P(transport_suite, large_transfer_between_scattered_memories_is_right) {
    connection over = connected_pair();
    seeded_random dice(5);
    std::size_t most = is_brief() ? 20000 : 200000;
    for (std::size_t count : {1u, 5u, 40u, 300u}) {
        SCOPED_TRACE(count);
        std::vector<std::size_t> far_lengths, near_lengths;
        for (std::size_t i = 0; i < count; ++i) {
            far_lengths.push_back(dice.below(most));
            near_lengths.push_back(dice.below(most));
        }
        auto far = pieces_of(zeroed(sum(far_lengths) + gap * count), far_lengths, gap);
        auto near = pieces_of(zeroed(sum(near_lengths) + gap * count), near_lengths, gap);
        std::size_t bytes = std::min(total(far), total(near)) * 9 / 10;
        std::size_t offset = dice.below(total(far) - bytes + 1);
        region target = over.b.end().open_region(scatter(far), access::read_write).value();
        auto ours = cut(near, 0, bytes);
        fill(ours, count);
        ASSERT_EQ(complete(over.a, request::put(over.b_at_a, constant(ours), target.key(), offset))
                      .code(),
                  errc::ok);
        ASSERT_TRUE(hold(cut(far, offset, bytes), count));
        fill(far, count + 1);
        ASSERT_EQ(complete(over.a, request::get(over.b_at_a, ours, target.key(), offset)).code(),
                  errc::ok);
        ASSERT_TRUE(hold(ours, count + 1, offset));
    }
}

TEST_P(transport_suite, region_of_nothing_takes_and_gives_nothing) {
    connection over = connected_pair();
    region none = over.b.end().open_region(scatter{}, access::read_write).value();
    region empty = over.b.end().open_region(mutable_bytes{}, access::read_write).value();
    for (const region* each : {&none, &empty}) {
        EXPECT_EQ(each->bytes(), 0u);
        EXPECT_EQ(complete(over.a, request::put(over.b_at_a, {}, each->key(), 0)).code(), errc::ok);
        EXPECT_EQ(complete(over.a, request::get(over.b_at_a, {}, each->key(), 0)).code(), errc::ok);
        EXPECT_EQ(
            complete(over.a, request::put(over.b_at_a, {patterned(1, 1)}, each->key(), 0)).code(),
            errc::denied);
    }
}

TEST_P(transport_suite, many_transfers_at_once_each_complete_once_with_their_own_bytes) {
    connection over = connected_pair();
    constexpr std::size_t slot = 3000;
    constexpr std::size_t count = 1000;
    mutable_bytes far = zeroed(slot * count);
    mutable_bytes near = zeroed(slot * count);
    const_bytes source = patterned(slot * count, 1);
    region target = over.b.end().open_region(far, access::read_write).value();
    for (op_kind kind : {op_kind::put, op_kind::get}) {
        std::vector<operation*> ops;
        for (std::size_t i = 0; i < count; ++i) {
            std::size_t bytes = i % 7 == 0 ? slot : i % slot;
            std::size_t at = i * slot;
            ops.push_back(&start(
                over.a,
                kind == op_kind::put
                    ? request::put(over.b_at_a, {source.subspan(at, bytes)}, target.key(), at)
                    : request::get(over.b_at_a, {near.subspan(at, bytes)}, target.key(), at)));
        }
        finish(ops);
        for (std::size_t i = 0; i < count; ++i) {
            std::size_t bytes = i % 7 == 0 ? slot : i % slot;
            ASSERT_EQ(ops[i]->code(), errc::ok);
            ASSERT_EQ(ops[i]->bytes(), bytes);
            const_bytes there = kind == op_kind::put ? far : near;
            ASSERT_TRUE(is_pattern(there.subspan(i * slot, bytes), 1, i * slot)) << i;
        }
    }
}

TEST_P(transport_suite, transfers_need_no_progress_of_the_target_when_the_kernel_carries_them) {
    connection over = connected_pair();
    if (over.a.end().can().rma != rma_mode::cross_memory)
        GTEST_SKIP() << "transfers are carried as messages here";
    mutable_bytes far = zeroed(100000);
    mutable_bytes near = zeroed(100000);
    region target = over.b.end().open_region(far, access::read_write).value();
    auto finish_alone = [&](operation& op) {
        for (int i = 0; i < 1000 && !op.over(); ++i)
            over.a.progress();
        EXPECT_TRUE(op.over());
        EXPECT_EQ(op.code(), errc::ok);
    };
    finish_alone(start(over.a, request::put(over.b_at_a, {patterned(100000, 1)}, target.key(), 0)));
    EXPECT_TRUE(is_pattern(far, 1));
    finish_alone(start(over.a, request::get(over.b_at_a, {near}, target.key(), 0)));
    EXPECT_TRUE(is_pattern(near, 1));
}

TEST_P(transport_suite, caller_may_write_into_the_one_that_serves_and_the_other_way_round) {
    connection over = connected_pair();
    // b is the accepting side: it accesses a over the same connection.
    mutable_bytes far = zeroed(70000);
    region target = over.a.end().open_region(far, access::read_write).value();
    EXPECT_EQ(
        complete(over.b, request::put(over.a_at_b, {patterned(70000, 1)}, target.key(), 0)).code(),
        errc::ok);
    EXPECT_TRUE(is_pattern(far, 1));
}

}  // namespace
}  // namespace amalgam::conformance
