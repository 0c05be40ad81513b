#include "fabric/port/send_queue.hpp"

#include <array>
#include <cstring>
#include <deque>
#include <string>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>

#include "fabric/limits.hpp"
#include "fabric/port/sent_list.hpp"

namespace amalgam::detail {
namespace {

struct lent_frame : completion {
    lent_frame() : completion([](completion&, status, std::size_t) noexcept {}) {}
};

wire_header header_of(std::size_t bytes, std::uint64_t tag) {
    frame_header header;
    header.bytes = static_cast<std::uint32_t>(bytes);
    header.tag = tag;
    return to_wire(header);
}

/// A queue that feeds a socket.
struct line {
    buffer_pool pool;
    send_queue queue{pool};
    std::vector<std::byte> out;  ///< Bytes taken by the socket.

    /// The socket takes at most `limit` bytes; returns the completions of frames that were sent.
    std::vector<completion*> write(std::size_t limit) {
        std::array<iovec, 64> places;
        const std::size_t count = queue.fill(places);
        std::size_t taken = 0;
        for (std::size_t i = 0; i < count; ++i) {
            const std::size_t some = std::min(places[i].iov_len, limit - taken);
            auto* from = static_cast<std::byte*>(places[i].iov_base);
            out.insert(out.end(), from, from + some);
            taken += some;
        }
        std::vector<completion*> told;
        while (taken > 0)
            if (completion* through = queue.advance(taken)) told.push_back(through);
        return told;
    }
    void expect_out(const std::vector<std::byte>& what) { EXPECT_EQ(out, what); }
};

struct sending : testing::Test, line {};

const std::string text = "0123456789abcdef";
const const_bytes whole = as_bytes_of(text);
const std::array<const_bytes, 3> pieces = {whole.first(4), const_bytes(), whole.subspan(4)};

std::vector<std::byte> wire_of(std::uint64_t tag) {
    const wire_header header = header_of(16, tag);
    std::vector<std::byte> bytes(header.begin(), header.end());
    bytes.insert(bytes.end(), whole.begin(), whole.end());
    return bytes;
}

TEST_F(sending, a_lent_frame_is_told_once_its_last_byte_left) {
    lent_frame op;
    ASSERT_TRUE(queue.lend(header_of(16, 1), pieces, op));
    for (int i = 0; i < 31; ++i)
        EXPECT_TRUE(write(1).empty()) << i;
    EXPECT_EQ(write(1), std::vector<completion*>{&op});
    EXPECT_TRUE(queue.empty());
    expect_out(wire_of(1));
}

TEST_F(sending, a_frame_begun_elsewhere_goes_on_where_it_was) {
    for (std::size_t gone = 0; gone < 32; ++gone) {
        out = wire_of(7);
        out.resize(gone);
        lent_frame op;
        ASSERT_TRUE(gone % 2 == 0 ? queue.lend(header_of(16, 7), pieces, op, gone)
                                  : queue.copy(header_of(16, 7), pieces, gone));
        write(5);
        write(64);
        EXPECT_TRUE(queue.empty());
        expect_out(wire_of(7));
    }
}

TEST_F(sending, many_copies_leave_by_one_call) {
    for (std::uint64_t tag = 0; tag < 300; ++tag)
        ASSERT_TRUE(queue.copy(header_of(16, tag), pieces));
    std::array<iovec, 64> places;
    EXPECT_EQ(queue.fill(places), 1u);
    EXPECT_EQ(places[0].iov_len, 300u * 32);
}

TEST_F(sending, copies_are_refused_past_a_bound_and_taken_again_below_it) {
    std::size_t taken = 0;
    while (queue.copy(header_of(16, taken), pieces))
        ++taken;
    EXPECT_EQ(taken, limits::max_copied_bytes / 32);
    EXPECT_FALSE(queue.has_room());
    while (!queue.has_room())
        write(1000);
    EXPECT_TRUE(queue.copy(header_of(16, 1), pieces));
}

TEST_F(sending, lent_frames_are_refused_past_a_bound) {
    std::deque<lent_frame> ops;
    while (queue.lend(header_of(16, 1), pieces, ops.emplace_back())) {
    }
    EXPECT_EQ(ops.size(), limits::max_borrowed_frames + 1);
    EXPECT_FALSE(queue.has_room());
    EXPECT_TRUE(queue.forget(ops.front()));
    EXPECT_TRUE(queue.lend(header_of(16, 1), pieces, ops.back()));
}

TEST_F(sending, only_a_frame_that_has_not_begun_is_forgotten) {
    lent_frame first, second, stranger;
    ASSERT_TRUE(queue.lend(header_of(16, 1), pieces, first));
    ASSERT_TRUE(queue.lend(header_of(16, 2), pieces, second));
    ASSERT_TRUE(queue.copy(header_of(16, 3), pieces));
    write(1);
    EXPECT_FALSE(queue.forget(first));
    EXPECT_TRUE(queue.forget(second));
    EXPECT_FALSE(queue.forget(second));
    EXPECT_FALSE(queue.forget(stranger));
    EXPECT_EQ(write(1000), std::vector<completion*>{&first});
    auto expected = wire_of(1);
    auto third = wire_of(3);
    expected.insert(expected.end(), third.begin(), third.end());
    expect_out(expected);
}

TEST_F(sending, a_detached_frame_leaves_whole_though_its_bytes_changed) {
    for (std::size_t before = 0; before < 32; ++before) {
        out.clear();
        std::string mine = text;
        std::array<const_bytes, 2> parts = {as_bytes_of(mine).first(3),
                                            as_bytes_of(mine).subspan(3)};
        lent_frame op;
        ASSERT_TRUE(queue.lend(header_of(16, 5), parts, op));
        write(before);
        ASSERT_TRUE(queue.detach(op));
        mine.assign(16, '!');
        EXPECT_TRUE(write(3).empty());
        EXPECT_TRUE(write(1000).empty()) << "a detached sender was told";
        expect_out(wire_of(5));
    }
}

TEST_F(sending, emptied_it_gives_its_buffers_back) {
    for (int round = 0; round < 3; ++round) {
        ASSERT_TRUE(queue.copy(header_of(16, 1), pieces));
        write(1000);
    }
    EXPECT_EQ(pool.counts().allocated, 1u);
    EXPECT_GT(pool.counts().idle_bytes, 0u);
}

TEST(send_queue, any_mix_leaves_in_order_and_tells_each_sender_once) {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        line run;
        seeded_random dice(seed);
        std::vector<std::byte> data(20'000);
        for (std::byte& one : data)
            one = static_cast<std::byte>(dice());
        struct one_frame {
            std::vector<std::byte> wire;
            std::vector<const_bytes> parts;
            lent_frame op;
            bool lent = false;
        };
        std::deque<one_frame> waiting;  // The model: frames in the order the socket must see.
        std::vector<std::byte> expected;
        auto settle = [&](const std::vector<completion*>& told) {
            for (completion* who : told) {
                while (!waiting.front().lent)
                    waiting.pop_front();
                ASSERT_EQ(&waiting.front().op, who);
                waiting.pop_front();
            }
        };
        for (int step = 0; step < 400; ++step) {
            const auto what = dice.below(10);
            if (what < 6) {
                one_frame& made = waiting.emplace_back();
                std::size_t at = 0;
                for (std::uint64_t i = dice.below(4); i > 0; --i) {
                    const std::size_t some = dice.below(dice.chance(0.2) ? 4000 : 100);
                    made.parts.push_back(const_bytes(data).subspan(at, some));
                    at += some;
                }
                const wire_header header = header_of(at, dice());
                made.wire.assign(header.begin(), header.end());
                made.wire.insert(made.wire.end(), data.begin(),
                                 data.begin() + static_cast<std::ptrdiff_t>(at));
                made.lent = dice.chance(0.5) || at > limits::max_copy_bytes;
                const bool kept = made.lent ? run.queue.lend(header, made.parts, made.op)
                                            : run.queue.copy(header, made.parts);
                if (kept)
                    expected.insert(expected.end(), made.wire.begin(), made.wire.end());
                else
                    waiting.pop_back();
            } else if (what < 9) {
                settle(run.write(dice.below(dice.chance(0.3) ? 30'000 : 200)));
            } else if (!waiting.empty() && waiting.back().lent &&
                       run.queue.forget(waiting.back().op)) {
                expected.resize(expected.size() - waiting.back().wire.size());
                waiting.pop_back();
            }
        }
        while (!run.queue.empty())
            settle(run.write(5000));
        while (!waiting.empty() && !waiting.front().lent)
            waiting.pop_front();
        EXPECT_TRUE(waiting.empty());
        ASSERT_EQ(run.out, expected);
    }
}

TEST(sent_frames, are_told_in_order_without_those_forgotten) {
    seeded_random dice(3);
    for (int round = 0; round < 200; ++round) {
        std::deque<lent_frame> all(12);
        sent_list list;
        std::deque<completion*> expected;
        for (lent_frame& one : all) {
            list.push(one);
            expected.push_back(&one);
            if (dice.chance(0.4)) {
                const std::size_t which = dice.below(expected.size());
                EXPECT_TRUE(list.forget(*expected[which]));
                EXPECT_FALSE(list.forget(*expected[which]));
                expected.erase(expected.begin() + static_cast<std::ptrdiff_t>(which));
            }
            if (!expected.empty() && dice.chance(0.2)) {
                EXPECT_EQ(&list.pop(), expected.front());
                expected.pop_front();
            }
            ASSERT_EQ(list.empty(), expected.empty());
        }
        for (; !expected.empty(); expected.pop_front())
            ASSERT_EQ(&list.pop(), expected.front());
        EXPECT_TRUE(list.empty());
        list.push(all[0]);
        list.clear();
        EXPECT_TRUE(list.empty());
    }
}

}  // namespace
}  // namespace amalgam::detail
