#include "fabric/sockets/resolver.hpp"

#include <algorithm>

#include <gtest/gtest.h>
#include <poll.h>

namespace amalgam::detail {
namespace {

TEST(resolve, numbers_need_nobody_to_ask) {
    auto found = resolve("127.0.0.1", 7000);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->front().uri(), "tcp://127.0.0.1:7000");
}

TEST(resolve, an_unknown_host_is_named_in_one_sentence) {
    auto found = resolve("no such host", 1);  // A space: refused without a lookup.
    ASSERT_FALSE(found);
    EXPECT_EQ(found.code(), errc::unreachable);
    EXPECT_NE(found.sentence().find("cannot resolve the host name \"no such host\""),
              std::string::npos);
}

TEST(resolver, answers_bear_the_number_of_their_question) {
    resolver here;
    std::uint64_t first = here.ask("127.0.0.1", 1);
    std::uint64_t second = here.ask("no such host", 2);
    std::uint64_t third = here.ask("::1", 3);
    std::vector<resolver::answer> all;
    while (all.size() < 3) {
        pollfd handle{here.fd(), POLLIN, 0};
        ASSERT_EQ(::poll(&handle, 1, -1), 1);
        for (auto& one : here.take())
            all.push_back(std::move(one));
    }
    auto of = [&](std::uint64_t question) -> auto& {
        return std::find_if(all.begin(), all.end(),
                            [&](const auto& one) { return one.question == question; })
            ->addresses;
    };
    EXPECT_EQ(of(first).value().front().uri(), "tcp://127.0.0.1:1");
    EXPECT_FALSE(of(second));
    EXPECT_EQ(of(third).value().front().uri(), "tcp://[::1]:3");
    pollfd handle{here.fd(), POLLIN, 0};
    EXPECT_EQ(::poll(&handle, 1, 0), 0);
}

TEST(resolver, may_end_with_questions_open) {
    for (int i = 0; i < 50; ++i) {
        resolver here;
        here.ask("localhost", 1);
        here.ask("localhost", 2);
    }
}

}  // namespace
}  // namespace amalgam::detail
