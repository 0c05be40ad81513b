#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

#include <amalgam/core/status.hpp>

#include "perf/pair.hpp"

namespace amalgam::perf {
namespace {

TEST(forked_peer, tells_by_its_line_why_it_failed) {
    testing::internal::CaptureStderr();
    {
        forked_peer peer([](channel&) { throw std::runtime_error("no room"); });
        try {
            peer.talk().read_line();
            ADD_FAILURE() << "a failure was taken for a line";
        } catch (const error& told) {
            EXPECT_EQ(told.code(), errc::handler_failed);
            EXPECT_STREQ(told.what(), "no room");
        }
    }
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");  // Reported once.
}

TEST(forked_peer, a_failure_that_nobody_read_is_told_at_the_end) {
    testing::internal::CaptureStderr();
    {
        forked_peer peer([](channel& talk) {
            talk.write_line("a result");
            throw std::runtime_error("no room");
        });
    }
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "amalgam perf: peer: no room\n");
}

TEST(forked_peer, that_is_left_ends_in_silence) {
    testing::internal::CaptureStderr();
    {
        forked_peer peer([](channel& talk) { talk.read_line(); });
    }
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace amalgam::perf
