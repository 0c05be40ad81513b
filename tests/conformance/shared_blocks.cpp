#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "conformance/pattern.hpp"
#include "conformance/served.hpp"

namespace amalgam::conformance {
namespace {

TEST_P(transport_suite, allocated_block_is_zeroed_and_starts_a_page) {
    node& a = open();
    for (std::size_t bytes :
         {std::size_t{1}, std::size_t{4095}, std::size_t{4097}, std::size_t{3} << 20}) {
        shared_block block = a.end().allocate(bytes).value();
        ASSERT_EQ(block.bytes().size(), bytes);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.bytes().data()) % 4096, 0u);
        EXPECT_TRUE(is_all(block.bytes(), std::byte{0}));
        fill_pattern(block.bytes(), 1);
        EXPECT_EQ(block.is_shared(), a.end().can().shares_blocks);
    }
}

TEST_P(transport_suite, block_of_no_bytes_is_refused_and_one_past_all_memory_too) {
    node& a = open();
    const auto nothing = a.end().allocate(0);
    EXPECT_EQ(nothing.code(), errc::invalid);
    EXPECT_NE(nothing.sentence().find("example"), std::string::npos) << nothing.sentence();
    for (std::size_t bytes : {~std::size_t{0}, ~std::size_t{0} / 2, std::size_t{1} << 62})
        EXPECT_EQ(a.end().allocate(bytes).code(), errc::no_memory);
}

TEST_P(transport_suite, put_and_get_between_blocks_move_exactly_their_bytes) {
    connection over = connected_pair();
    auto sizes = message_sizes();
    const std::size_t most = std::min<std::size_t>(sizes.back(), std::size_t{9} << 20);
    shared_block far = over.b.end().allocate(most + 3).value();
    shared_block source = over.a.end().allocate(most).value();
    shared_block near = over.a.end().allocate(most + 1).value();
    fill_pattern(source.bytes(), 1);
    region target = over.b.end().open_region(far.bytes().subspan(1), access::read_write).value();
    for (std::size_t bytes : sizes) {
        if (bytes > most) break;
        std::fill_n(far.bytes().begin(), bytes + 3, std::byte{0});
        std::fill_n(near.bytes().begin(), bytes + 1, std::byte{0});
        operation& put = complete(
            over.a, request::put(over.b_at_a, {source.bytes().first(bytes)}, target.key(), 1));
        ASSERT_EQ(put.code(), errc::ok) << bytes;
        ASSERT_TRUE(is_pattern(far.bytes().subspan(2, bytes), 1)) << bytes;
        EXPECT_EQ(far.bytes()[1], std::byte{0});
        EXPECT_EQ(far.bytes()[bytes + 2], std::byte{0});
        operation& get = complete(
            over.a, request::get(over.b_at_a, {near.bytes().first(bytes)}, target.key(), 1));
        ASSERT_EQ(get.code(), errc::ok) << bytes;
        ASSERT_TRUE(is_pattern(near.bytes().first(bytes), 1)) << bytes;
        EXPECT_EQ(near.bytes()[bytes], std::byte{0});
    }
}

TEST_P(transport_suite, region_of_pieces_of_several_blocks_and_of_other_memory_is_one_range) {
    connection over = connected_pair();
    shared_block one = over.b.end().allocate(10000).value();
    shared_block two = over.b.end().allocate(300000).value();
    mutable_bytes other = zeroed(5000);
    const std::vector<std::vector<mutable_bytes>> layouts = {
        {two.bytes().subspan(100000, 200000), one.bytes().subspan(7, 20), two.bytes().first(100000),
         one.bytes().subspan(5000)},
        {two.bytes().first(100000), other, one.bytes()}};
    for (const auto& pieces : layouts) {
        std::size_t bytes = 0;
        for (mutable_bytes piece : pieces)
            bytes += piece.size();
        region target = over.b.end().open_region(scatter(pieces), access::read_write).value();
        mutable_bytes source = patterned(bytes, 3);
        mutable_bytes near = zeroed(bytes);
        ASSERT_EQ(complete(over.a, request::put(over.b_at_a, {source.first(11), source.subspan(11)},
                                                target.key(), 0))
                      .code(),
                  errc::ok);
        std::uint64_t at = 0;
        for (mutable_bytes piece : pieces) {
            ASSERT_TRUE(is_pattern(piece, 3, at));
            at += piece.size();
        }
        ASSERT_EQ(
            complete(over.a, request::get(over.b_at_a, {near.first(bytes - 13), near.last(13)},
                                          target.key(), 0))
                .code(),
            errc::ok);
        ASSERT_TRUE(is_pattern(near, 3));
    }
}

TEST_P(transport_suite, refused_key_to_a_block_is_denied_and_touches_nothing) {
    connection over = connected_pair();
    shared_block block = over.b.end().allocate(3 * 4096).value();
    std::fill(block.bytes().begin(), block.bytes().end(), untouched);
    const mutable_bytes middle = block.bytes().subspan(4096, 4096);
    region whole = over.b.end().open_region(middle, access::read_write).value();
    region readable = over.b.end().open_region(middle, access::read).value();
    const remote_key closed = over.b.end().open_region(middle, access::read_write).value().key();
    remote_key forged = whole.key();
    forged.secret ^= 1;
    remote_key widened = readable.key();
    widened.rights = access::read_write;
    remote_key longer = whole.key();
    longer.bytes += 4096;
    // The block is mapped by now, if at all.
    mutable_bytes into = zeroed(64);
    ASSERT_EQ(complete(over.a, request::get(over.b_at_a, {into}, whole.key(), 0)).code(), errc::ok);

    std::fill(into.begin(), into.end(), std::byte{1});
    struct refusal {
        const char* why;
        remote_key key;
        bool get = true;
        std::uint64_t offset = 0;
    };
    const refusal refusals[] = {{"forged", forged},
                                {"closed", closed},
                                {"reads only", readable.key(), false},
                                {"claims to write", widened},
                                {"claims more bytes", longer, true, 4096},
                                {"past the end", whole.key(), true, 4033},
                                {"before the start", whole.key(), true, ~std::uint64_t{0} - 63}};
    for (const refusal& each : refusals) {
        SCOPED_TRACE(each.why);
        EXPECT_EQ(
            complete(over.a, request::put(over.b_at_a, {patterned(64, 1)}, each.key, each.offset))
                .code(),
            errc::denied);
        if (!each.get) continue;
        EXPECT_EQ(complete(over.a, request::get(over.b_at_a, {into}, each.key, each.offset)).code(),
                  errc::denied);
        EXPECT_TRUE(is_all(into, std::byte{1}));
    }
    EXPECT_TRUE(is_all(block.bytes(), untouched));
}

TEST_P(transport_suite, block_whose_region_closed_during_a_transfer_is_its_owners_again) {
    connection over = connected_pair();
    const std::size_t bytes = std::size_t{is_brief() ? 1u : 4u} << 20;
    const_bytes source = patterned(bytes, 1);
    mutable_bytes near = zeroed(bytes);
    for (op_kind kind : {op_kind::put, op_kind::get}) {
        for (int after : {0, 1, 3, 13}) {
            SCOPED_TRACE(std::string(name(kind)) + ", closed after " + std::to_string(after));
            shared_block far = over.b.end().allocate(bytes).value();
            fill_pattern(far.bytes(), 2);
            region target = over.b.end().open_region(far.bytes(), access::read_write).value();
            operation& op = start(over.a, kind == op_kind::put
                                              ? request::put(over.b_at_a, {source}, target.key(), 0)
                                              : request::get(over.b_at_a, {near}, target.key(), 0));
            for (int i = 0; i < after; ++i) {
                over.a.progress(1);
                over.b.progress(1);
            }
            target = region();
            std::fill(far.bytes().begin(), far.bytes().end(), untouched);
            finish(op);
            EXPECT_TRUE(op.code() == errc::ok || op.code() == errc::denied)
                << amalgam::name(op.code());
            flush(over);
            EXPECT_TRUE(is_all(far.bytes(), untouched));
            if (kind == op_kind::get && op.code() == errc::ok) {
                EXPECT_TRUE(is_pattern(near, 2));
            }
        }
    }
}

TEST_P(transport_suite, blocks_that_come_and_go_are_never_taken_for_each_other) {
    connection over = connected_pair();
    mutable_bytes near = zeroed(9000);
    std::vector<shared_block> blocks(100);
    for (std::uint64_t i = 0; i < 300; ++i) {
        shared_block& block = blocks[i * 7 % blocks.size()];
        block = shared_block();
        block = over.b.end().allocate(9000).value();
        fill_pattern(block.bytes(), i);
        region target = over.b.end().open_region(block.bytes(), access::read_write).value();
        ASSERT_EQ(complete(over.a, request::get(over.b_at_a, {near}, target.key(), 0)).code(),
                  errc::ok);
        ASSERT_TRUE(is_pattern(near, i)) << i;
        ASSERT_EQ(
            complete(over.a, request::put(over.b_at_a, {patterned(8, i + 1)}, target.key(), 8992))
                .code(),
            errc::ok);
        ASSERT_TRUE(is_pattern(block.bytes().last(8), i + 1));
    }
}

TEST_P(transport_suite, block_outlives_its_port) {
    node& a = open();
    shared_block block = a.end().allocate(5000).value();
    fill_pattern(block.bytes(), 1);
    a.shut();
    EXPECT_TRUE(is_pattern(block.bytes(), 1));
    EXPECT_FALSE(block.is_shared());
}

TEST_P(transport_suite, block_of_another_process_is_read_and_written) {
    if (!between_processes()) GTEST_SKIP() << "its ports do not leave the process";
    child_process& other = spawn([&](channel& parent) { serve(*this, parent, GetParam()); });
    node& here = open();
    const served told = served::from_text(hear(other));
    const peer_id peer = reach(*this, here, told.address);
    shared_block near = here.end().allocate(served_bytes).value();
    fill_pattern(near.bytes(), 4);
    ASSERT_EQ(complete(here, request::put(peer, {near.bytes()}, told.block_key, 0)).code(),
              errc::ok);
    std::fill(near.bytes().begin(), near.bytes().end(), std::byte{0});
    ASSERT_EQ(complete(here, request::get(peer, {near.bytes()}, told.block_key, 0)).code(),
              errc::ok);
    EXPECT_TRUE(is_pattern(near.bytes(), 4));
}

TEST_P(transport_suite, process_killed_in_transfers_of_its_block_ends_them) {
    if (!between_processes()) GTEST_SKIP() << "its ports do not leave the process";
    const_bytes out = patterned(served_bytes, 1);
    mutable_bytes into = zeroed(served_bytes);
    for (int after : {0, 3, 20}) {
        child_process& other = spawn([&](channel& parent) { serve(*this, parent, GetParam()); });
        node& here = open();
        const served told = served::from_text(hear(other));
        const peer_id peer = reach(*this, here, told.address);
        std::vector<operation*> ops;
        for (int i = 0; i < 3; ++i) {
            ops.push_back(&here.try_post(request::put(peer, {out}, told.block_key, 0)));
            ops.push_back(&here.try_post(request::get(peer, {into}, told.block_key, 0)));
        }
        for (int i = 0; i < after; ++i)
            here.progress(1);
        std::erase_if(ops, [](operation* op) { return op->refused(); });
        other.kill();
        finish(ops);
        for (operation* op : ops)
            EXPECT_TRUE(op->code() == errc::ok || op->code() == errc::disconnected)
                << amalgam::name(op->code());
        until("the word of the loss", [&] { return here.has_lost(peer); });
        EXPECT_EQ(complete(here, request::get(peer, {into}, told.block_key, 0)).code(),
                  errc::disconnected);
        here.shut();
    }
}

}  // namespace
}  // namespace amalgam::conformance
