#include "rpc/tracing/slow_calls.hpp"

#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/log.hpp>

#include "contains.hpp"

namespace amalgam::detail {
namespace {

constexpr std::uint64_t ms = 1'000'000;

std::string line_of(const slow_call& what) {
    std::string line;
    default_logger().set_sink([&](const log_record& record) { line = to_text(record); });
    log_slow_call(what);
    default_logger().set_sink({});
    return line;
}

TEST(slow_calls, the_limit_is_a_number_with_a_unit) {
    EXPECT_EQ(parse_slow_calls("250us"), 250'000u);
    EXPECT_EQ(parse_slow_calls("100ms"), 100 * ms);
    EXPECT_EQ(parse_slow_calls("2s"), 2000 * ms);
    for (const char* wrong :
         {"", "100", "ms", "0ms", "-1ms", "1 ms", "1h", "18446744073709551615s"})
        EXPECT_FALSE(parse_slow_calls(wrong)) << wrong;
}

TEST(slow_calls, a_line_names_where_the_time_went) {
    const auto trace = trace_context::start();
    slow_call call{"sum", "tcp://node:1", {}, 1 * ms, 100 * ms, call_times{2 * ms, 90 * ms}, trace};
    std::string line = line_of(call);
    for (const char* part :
         {"procedure=sum", "peer=tcp://node:1", "status=ok", "ms=100", "mostly=\"in the handler\"",
          "queued_ms=1", "way_ms=7", "waited_ms=2", "handler_ms=90"}) {
        EXPECT_TRUE(contains(line, part)) << part << " in " << line;
    }
    EXPECT_TRUE(contains(line, trace.traceparent().c_str())) << line;
    call.there = call_times{80 * ms, 1 * ms};
    EXPECT_TRUE(contains(line_of(call), "mostly=\"waiting for a stream there\""));
    call.there = call_times{1 * ms, 1 * ms};
    EXPECT_TRUE(contains(line_of(call), "mostly=\"on the way, there and back\""));
    call.queued = 95 * ms;
    EXPECT_TRUE(contains(line_of(call), "mostly=\"queued here\""));
}

TEST(slow_calls, a_server_that_tells_nothing_or_nonsense_does_no_harm) {
    slow_call call{"sum", "tcp://node:1", {errc::timed_out}, 1 * ms, 100 * ms, {}, {}};
    std::string line = line_of(call);
    EXPECT_TRUE(contains(line, "mostly=\"at the peer or on the way\"")) << line;
    EXPECT_TRUE(contains(line, "untold_ms=99")) << line;
    EXPECT_TRUE(contains(line, "status=timed_out")) << line;
    call.there = call_times{~0ull, ~0ull};
    line = line_of(call);
    EXPECT_TRUE(contains(line, "handler_ms=99")) << line;
    EXPECT_TRUE(contains(line, "waited_ms=0")) << line;
}

TEST(slow_calls, times_are_read_as_written) {
    std::array<std::byte, call_times::wire_bytes> wire;
    call_times{3, 5}.write(wire.data());
    const auto read = call_times::read(wire);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->waited, 3u);
    EXPECT_EQ(read->handled, 5u);
    EXPECT_FALSE(call_times::read(const_bytes(wire).first(8)));
}

}  // namespace
}  // namespace amalgam::detail
