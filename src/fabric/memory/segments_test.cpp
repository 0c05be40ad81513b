#include "fabric/memory/segments.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fabric/port/port_testing.hpp"

namespace amalgam::detail {
namespace {

using testing_support::bytes_of;

std::string text(const std::vector<const_bytes>& pieces) {
    std::string all;
    for (const_bytes piece : pieces) {
        all.append(reinterpret_cast<const char*>(piece.data()), piece.size());
        all += '|';
    }
    return all;
}

TEST(segments, slices_follow_each_other_and_skip_empty_segments) {
    const std::vector<const_bytes> segments{
        {}, bytes_of("abc"), {}, {}, bytes_of("d"), bytes_of("efgh"), {}};
    EXPECT_EQ(total_bytes(gather(segments)), 8u);
    segment_cursor at;
    std::vector<const_bytes> first, second, rest, none;
    slice(gather(segments), at, 2, first);
    slice(gather(segments), at, 3, second);
    slice(gather(segments), at, 3, rest);
    slice(gather(segments), at, 0, none);
    EXPECT_EQ(text(first), "ab|");
    EXPECT_EQ(text(second), "c|d|e|");
    EXPECT_EQ(text(rest), "fgh|");
    EXPECT_TRUE(none.empty());
}

TEST(segments, copies_in_and_out_are_one_range) {
    std::byte a[3], b[4];
    const mutable_bytes to[] = {a, {}, b};
    segment_cursor at;
    copy_in(to, at, bytes_of("hel"));
    copy_in(to, at, bytes_of("lo12"));
    const const_bytes from[] = {a, {}, b};
    std::byte out[7];
    copy_out(from, out);
    EXPECT_EQ(std::memcmp(out, "hello12", 7), 0);
}

}  // namespace
}  // namespace amalgam::detail
