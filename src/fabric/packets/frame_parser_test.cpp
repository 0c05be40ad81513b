#include "fabric/packets/frame_parser.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>

#include "fabric/frames/wire_header.hpp"
#include "fabric/port/port_testing.hpp"

namespace amalgam::detail {
namespace {

using testing_support::pattern;

/// Reassembles frames, however they arrive.
class collector final : public frame_handler {
public:
    struct frame {
        std::uint64_t tag;
        std::vector<std::byte> bytes;
    };
    std::vector<frame> frames;
    std::size_t parts = 0;
    delivery answer = delivery::taken;

private:
    delivery on_frame(const frame_header& header, const_bytes payload) noexcept override {
        frames.push_back({header.tag, {payload.begin(), payload.end()}});
        return answer;
    }
    placement* on_large(const frame_header& header, const_bytes prefix) noexcept override {
        ++parts;
        EXPECT_GE(prefix.size(), std::min<std::size_t>(header.bytes, 64));
        tag_ = header.tag;
        memory_.assign(prefix.begin(), prefix.end());
        memory_.resize(header.bytes);
        rest_ = mutable_bytes(memory_).subspan(prefix.size());
        placement_ = {scatter(&rest_, 1), false};
        return &placement_;
    }
    delivery on_large_end() noexcept override {
        frames.push_back({tag_, memory_});
        return answer;
    }

    std::uint64_t tag_ = 0;
    std::vector<std::byte> memory_;
    mutable_bytes rest_;
    placement placement_;
};

std::vector<std::byte> wire_of(const std::vector<std::size_t>& sizes) {
    std::vector<std::byte> wire;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        const auto header = to_wire(header_of(frame_kind::unexpected, i, sizes[i]));
        wire.insert(wire.end(), header.begin(), header.end());
        const auto bytes = pattern(sizes[i], i);
        wire.insert(wire.end(), bytes.begin(), bytes.end());
    }
    return wire;
}

void expect_all(const collector& got, const std::vector<std::size_t>& sizes) {
    ASSERT_EQ(got.frames.size(), sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        EXPECT_EQ(got.frames[i].tag, i);
        EXPECT_EQ(got.frames[i].bytes, pattern(sizes[i], i));
    }
}

TEST(frame_parser, frames_in_one_piece_are_handed_over_where_they_are) {
    const std::vector<std::size_t> sizes{0, 1, 63, 64, 65, 5000, 0};
    const auto wire = wire_of(sizes);
    frame_parser parser(1 << 20);
    collector got;
    const_bytes rest(wire);
    EXPECT_EQ(parser.feed(rest, got), delivery::taken);
    EXPECT_TRUE(rest.empty());
    EXPECT_EQ(got.parts, 0u);
    expect_all(got, sizes);
}

TEST(frame_parser, frames_cut_anywhere_come_whole) {
    const std::vector<std::size_t> sizes{0, 5, 64, 200, 70, 3000, 1, 0, 15, 16, 17};
    const auto wire = wire_of(sizes);
    for (std::uint64_t seed = 0; seed < 2000; ++seed) {
        seeded_random dice(seed);
        frame_parser parser(1 << 20);
        collector got;
        for (std::size_t at = 0; at < wire.size();) {
            const std::size_t most = seed % 3 == 0 ? 4 : seed % 3 == 1 ? 90 : 900;
            const std::size_t some = std::min<std::size_t>(1 + dice.below(most), wire.size() - at);
            const_bytes piece(wire.data() + at, some);
            ASSERT_EQ(parser.feed(piece, got), delivery::taken);
            at += some;
        }
        expect_all(got, sizes);
    }
}

TEST(frame_parser, verdict_stops_it_behind_the_frame) {
    const std::vector<std::size_t> sizes{5, 100, 7};
    const auto wire = wire_of(sizes);
    frame_parser parser(1 << 20);
    collector got;
    got.answer = delivery::pause;
    const_bytes rest(wire);
    for (std::size_t i = 1; i <= sizes.size(); ++i) {
        EXPECT_EQ(parser.feed(rest, got), delivery::pause);
        EXPECT_EQ(got.frames.size(), i);
    }
    EXPECT_TRUE(rest.empty());
    expect_all(got, sizes);
}

TEST(frame_parser, frame_longer_than_allowed_is_malformed) {
    const auto wire = wire_of({1001});
    frame_parser parser(1000);
    collector got;
    const_bytes rest(wire);
    EXPECT_EQ(parser.feed(rest, got), delivery::malformed);
    EXPECT_TRUE(got.frames.empty());
}

}  // namespace
}  // namespace amalgam::detail
