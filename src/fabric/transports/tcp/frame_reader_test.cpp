#include "fabric/transports/tcp/frame_reader.hpp"

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>

#include "fabric/frames/wire_header.hpp"

namespace amalgam::detail {
namespace {

using state = frame_reader::state;
constexpr std::uint32_t max_bytes = 1u << 20;

struct frame {
    frame_kind kind = frame_kind::unexpected;
    std::uint64_t tag = 0;
    std::vector<std::byte> payload;
    friend bool operator==(const frame&, const frame&) = default;
};

frame frame_of(std::size_t bytes, std::uint64_t seed) {
    seeded_random dice(seed);
    frame made{static_cast<frame_kind>(1 + dice.below(10)), seed, std::vector<std::byte>(bytes)};
    for (std::byte& one : made.payload)
        one = static_cast<std::byte>(dice());
    return made;
}

void append(std::vector<std::byte>& stream, const frame& one) {
    frame_header header;
    header.bytes = static_cast<std::uint32_t>(one.payload.size());
    header.kind = one.kind;
    header.tag = one.tag;
    const wire_header wire = to_wire(header);
    stream.insert(stream.end(), wire.begin(), wire.end());
    stream.insert(stream.end(), one.payload.begin(), one.payload.end());
}

/// Receives what a reader finds; large frames in pieces of random lengths.
class recorder final : public frame_handler {
public:
    delivery on_frame(const frame_header& header, const_bytes payload) noexcept override {
        EXPECT_EQ(header.bytes, payload.size());
        found.push_back({header.kind, header.tag, {payload.begin(), payload.end()}});
        return next_verdict();
    }
    placement* on_large(const frame_header& header, const_bytes prefix) noexcept override {
        EXPECT_GE(prefix.size(), 64u);
        EXPECT_LT(prefix.size(), header.bytes);
        ++placements;
        if (refuse_large) return nullptr;
        large = {header.kind, header.tag, std::vector<std::byte>(header.bytes)};
        std::memcpy(large.payload.data(), prefix.data(), prefix.size());
        mutable_bytes rest = mutable_bytes(large.payload).subspan(prefix.size());
        segments.clear();
        while (!rest.empty()) {
            std::size_t some = std::min(rest.size(), dice.below(largest_segment + 1));
            segments.push_back(rest.first(some));
            rest = rest.subspan(some);
        }
        open = {segments, false};
        return &open;
    }
    bool on_large_full() noexcept override {
        ADD_FAILURE() << "the placement had room for all";
        return false;
    }
    delivery on_large_end() noexcept override {
        if (!open.discard) found.push_back(std::move(large));
        return next_verdict();
    }

    std::vector<frame> found;
    frame large;
    std::vector<mutable_bytes> segments;
    placement open;
    seeded_random dice{1};
    std::size_t largest_segment = 100'000;
    std::size_t placements = 0;
    bool refuse_large = false;
    double pause_chance = 0;
    delivery answer = delivery::taken;

private:
    delivery next_verdict() { return dice.chance(pause_chance) ? delivery::pause : answer; }
};

/// A reader and everything it needs.
struct reading {
    buffer_pool pool;
    receive_memory memory{pool};
    frame_reader reader{max_bytes};
    recorder to;

    /// Gives the reader at most `limit` bytes of the rest of `stream`.
    state feed(const_bytes& stream, std::size_t limit, std::size_t& budget) {
        std::array<iovec, frame_reader::max_places> into;
        const std::size_t count = reader.places(into, memory);
        EXPECT_GT(count, 0u);
        std::size_t taken = 0;
        for (std::size_t i = 0; i < count; ++i) {
            const std::size_t some = std::min({into[i].iov_len, limit - taken, stream.size()});
            std::memcpy(into[i].iov_base, stream.data(), some);
            stream = stream.subspan(some);
            taken += some;
        }
        return reader.took(taken, budget, to, memory);
    }
    /// The whole stream, at most `limit` bytes at a time.
    state feed_all(const_bytes stream, std::size_t limit) {
        state now = state::starving;
        std::size_t budget = ~std::size_t{0};
        while (!stream.empty() && now == state::starving)
            now = feed(stream, limit, budget);
        return now;
    }
};

struct frame_reading : testing::Test, reading {};

TEST_F(frame_reading, byte_by_byte_gives_every_frame) {
    std::vector<frame> sent;
    std::vector<std::byte> stream;
    for (std::size_t bytes : {0, 1, 15, 16, 17, 100, 4095, 4096, 9000, 0, 3})
        append(stream, sent.emplace_back(frame_of(bytes, sent.size())));
    EXPECT_EQ(feed_all(stream, 1), state::starving);
    EXPECT_EQ(to.found, sent);
    EXPECT_EQ(to.placements, 2u);
}

TEST_F(frame_reading, a_cut_at_any_place_changes_nothing) {
    std::vector<frame> sent;
    std::vector<std::byte> stream;
    for (std::size_t bytes : {5, 0, 4097, 70})
        append(stream, sent.emplace_back(frame_of(bytes, sent.size())));
    for (std::size_t cut = 0; cut <= stream.size(); ++cut) {
        to.found.clear();
        const_bytes all(stream);
        ASSERT_EQ(feed_all(all.first(cut), stream.size()), state::starving);
        ASSERT_EQ(feed_all(all.subspan(cut), stream.size()), state::starving);
        ASSERT_EQ(to.found, sent) << cut;
    }
}

TEST_F(frame_reading, what_comes_whole_needs_no_landing) {
    std::vector<std::byte> stream;
    for (std::uint64_t i = 0; i < 10; ++i)
        append(stream, frame_of(10'000, i));
    EXPECT_EQ(feed_all(stream, stream.size()), state::starving);
    EXPECT_EQ(to.found.size(), 10u);
    EXPECT_EQ(to.placements, 0u);
}

TEST_F(frame_reading, an_idle_reader_holds_no_receive_buffer) {
    std::vector<std::byte> stream;
    append(stream, frame_of(50, 1));
    append(stream, frame_of(2000, 2));
    stream.resize(stream.size() - 1000);
    EXPECT_EQ(feed_all(stream, stream.size()), state::starving);
    const std::uint64_t before = pool.counts().allocated;
    buffer shared = memory.take();
    EXPECT_EQ(shared.size(), receive_memory::bytes);
    EXPECT_EQ(pool.counts().allocated, before) << "the reader kept the port's receive buffer";
}

TEST_F(frame_reading, a_used_up_budget_stops_between_frames_and_loses_none) {
    std::vector<frame> sent;
    std::vector<std::byte> stream;
    for (std::uint64_t i = 0; i < 7; ++i)
        append(stream, sent.emplace_back(frame_of(100, i)));
    std::size_t budget = 3;
    const_bytes rest(stream);
    EXPECT_EQ(feed(rest, stream.size(), budget), state::busy);
    EXPECT_EQ(to.found.size(), 3u);
    EXPECT_EQ(budget, 0u);
    budget = 4;
    EXPECT_EQ(reader.go_on(budget, to, memory), state::starving);
    EXPECT_EQ(to.found, sent);
}

TEST_F(frame_reading, after_a_long_landing_the_next_frame_is_not_read_through_the_receive_buffer) {
    std::vector<std::byte> first, second;
    append(first, frame_of(200'000, 1));
    append(second, frame_of(200'000, 2));
    ASSERT_EQ(feed_all(const_bytes(first).first(1000), 1000), state::starving);
    ASSERT_EQ(feed_all(const_bytes(first).subspan(1000), first.size()), state::starving);
    ASSERT_EQ(to.found.size(), 1u);
    const_bytes rest(second);
    std::size_t budget = 10;
    ASSERT_EQ(feed(rest, rest.size(), budget), state::starving);
    EXPECT_EQ(to.placements, 2u);
    EXPECT_GE(rest.size(), 190'000u) << "so much stays to be read where it belongs";
    ASSERT_EQ(feed_all(rest, rest.size()), state::starving);
    EXPECT_EQ(to.found.size(), 2u);

    std::vector<std::byte> small;
    for (std::uint64_t i = 0; i < 100; ++i)
        append(small, frame_of(1000, i));
    rest = small;
    budget = 200;
    ASSERT_EQ(feed(rest, rest.size(), budget), state::starving);
    ASSERT_EQ(feed(rest, rest.size(), budget), state::starving);
    EXPECT_TRUE(rest.empty()) << "small ones come by many again";
}

TEST_F(frame_reading, a_landing_may_turn_into_a_discarding_one_halfway) {
    std::vector<std::byte> stream;
    append(stream, frame_of(200'000, 1));
    frame after = frame_of(10, 2);
    append(stream, after);
    const_bytes all(stream);
    ASSERT_EQ(feed_all(all.first(90'000), 90'000), state::starving);
    ASSERT_EQ(feed_all(all.subspan(90'000, 50'000), 50'000), state::starving);
    to.open = {{}, true};
    ASSERT_EQ(feed_all(all.subspan(140'000), 7'000), state::starving);
    EXPECT_EQ(to.found, std::vector{after});
}

TEST_F(frame_reading, a_landing_of_tiny_segments_is_filled_as_well) {
    to.largest_segment = 3;
    std::vector<frame> sent;
    std::vector<std::byte> stream;
    for (std::uint64_t i = 0; i < 3; ++i)
        append(stream, sent.emplace_back(frame_of(60'000, i)));
    EXPECT_EQ(feed_all(stream, 10'000), state::starving);
    EXPECT_EQ(to.found, sent);
    EXPECT_EQ(to.placements, 3u);
}

TEST_F(frame_reading, unknown_kinds_and_absurd_lengths_are_malformed) {
    for (int kind : {0, 11, 15, 16, 255}) {
        std::vector<std::byte> stream;
        frame wrong = frame_of(8, 1);
        wrong.kind = static_cast<frame_kind>(kind);
        append(stream, wrong);
        EXPECT_EQ(reading().feed_all(stream, 64), state::malformed) << kind;
    }
    std::vector<std::byte> stream(16);
    stream[4] = std::byte{1};
    store_le(stream.data(), max_bytes + 1);
    EXPECT_EQ(reading().feed_all(stream, 64), state::malformed);
    store_le(stream.data(), max_bytes);
    EXPECT_EQ(reading().feed_all(stream, 64), state::starving);
}

TEST_F(frame_reading, the_handlers_refusal_is_passed_on) {
    std::vector<std::byte> small;
    append(small, frame_of(8, 1));
    to.answer = delivery::malformed;
    EXPECT_EQ(feed_all(small, 64), state::malformed);
    to.answer = delivery::gone;
    EXPECT_EQ(feed_all(small, 64), state::gone);
    std::vector<std::byte> large;
    append(large, frame_of(8000, 1));
    reading other;
    other.to.refuse_large = true;
    EXPECT_EQ(other.feed_all(large, 100), state::malformed);
}

TEST(frame_reader, any_stream_in_any_pieces_with_any_stops_gives_what_was_sent) {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        reading run;
        seeded_random dice(seed);
        run.to.dice = seeded_random(seed + 1000);
        run.to.pause_chance = dice.chance(0.5) ? 0.2 : 0;
        run.to.largest_segment = dice.chance(0.3) ? 50 : 50'000;
        std::vector<frame> sent;
        std::vector<std::byte> stream;
        while (stream.size() < 200'000) {
            const std::size_t around = std::size_t{1} << dice.below(17);
            append(stream, sent.emplace_back(frame_of(dice.below(around + 1), dice())));
        }
        const_bytes rest(stream);
        const std::size_t piece = std::size_t{1} << dice.below(17);
        state now = state::starving;
        while (!rest.empty() || now != state::starving) {
            std::size_t budget = 1 + dice.below(9);
            const std::size_t before = run.to.found.size();
            const std::size_t asked = budget;
            now = now == state::starving ? run.feed(rest, 1 + dice.below(piece), budget)
                                         : run.reader.go_on(budget, run.to, run.memory);
            ASSERT_TRUE(now == state::starving || now == state::busy || now == state::paused);
            ASSERT_EQ(run.to.found.size() - before, asked - budget);
        }
        ASSERT_EQ(run.to.found, sent);
    }
}

}  // namespace
}  // namespace amalgam::detail
