// Allocations of a message between resources in steady state, both ends together: none.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include <amalgam/directory/context.hpp>
#include <amalgam/directory/directory_server.hpp>
#include <amalgam/rocl.h>

#include "memory/memory.hpp"
#include "tasks/stacks/sanitizer.hpp"

namespace amalgam::memory {
namespace {

class steady_resources : public testing::TestWithParam<const char*> {
protected:
    /// Of 2000 rounds: where threads meet, more may be under way at once than ever before.
    static constexpr std::uint64_t a_few = 20;

    void SetUp() override {
        if (detail::sanitized) GTEST_SKIP() << "small blocks are not pooled under sanitizers";
    }
    /// Allocations while `give(content)` sends to the other resource, which posts it back, 2000
    /// times after as many to warm up.
    template <typename Give>
    std::uint64_t in_steady_state(const std::string& content, Give give) {
        future<void> echoes = echo();
        const std::uint64_t taken = client.run([&] {
            return of_the_second([&] {
                give(content);
                EXPECT_EQ(mine.receive().content.size(), content.size());
            });
        });
        mine.post(theirs.id(), 0, const_bytes());
        echoes.get();
        return taken;
    }
    /// Until an empty one comes.
    future<void> echo() {
        return server.spawn([&] {
            for (;;) {
                const resource_message got = theirs.receive();
                if (got.content.size() == 0) return;
                theirs.post(got.from, got.tag, got.content.bytes());
            }
        });
    }
    /// Allocations of 2000 rounds, after as many.
    template <typename Round>
    static std::uint64_t of_the_second(Round round) {
        std::uint64_t before = 0;
        for (int i = 0; i < 4000; ++i) {
            if (i == 2000) before = allocations();
            round();
        }
        return allocations() - before;
    }

    engine server{GetParam()};
    engine client{GetParam()};
    directory_server directory{server};
    context there{server, {.directory = server.address()}};
    context here{client, {.directory = server.address()}};
    resource theirs = there.add({});
    resource mine = here.add({});
};

INSTANTIATE_TEST_SUITE_P(shm, steady_resources, testing::Values("shm://"));
INSTANTIATE_TEST_SUITE_P(tcp, steady_resources, testing::Values("tcp://127.0.0.1:0"));

TEST_P(steady_resources, take_no_memory_for_posts) {
    const auto post = [&](const std::string& content) { mine.post(theirs.id(), 1, content); };
    EXPECT_LT(in_steady_state("8 bytes.", post), a_few);
    EXPECT_LT(in_steady_state(std::string(1000, 'c'), post), a_few);
}

TEST_P(steady_resources, take_no_memory_for_sends) {
    const auto send = [&](const std::string& content) { mine.send(theirs.id(), 1, content); };
    EXPECT_LT(in_steady_state("8 bytes.", send), a_few);
    EXPECT_LT(in_steady_state(std::string(1000, 'c'), send), a_few);
}

TEST_P(steady_resources, take_no_memory_for_sends_that_are_started) {
    const auto start = [&](const std::string& content) {
        message_buffer filled = here.take_buffer(content.size());
        std::memcpy(filled.data(), content.data(), content.size());
        mine.start_send(theirs.id(), 1, std::move(filled)).get();
    };
    EXPECT_LT(in_steady_state("8 bytes.", start), a_few);
    EXPECT_LT(in_steady_state(std::string(1000, 'c'), start), a_few);
}

TEST_P(steady_resources, take_no_memory_in_the_interface_in_c) {
    ::setenv("AMALGAM_DIRECTORY", server.address().c_str(), 1);
    ::setenv("AMALGAM_PORTS", GetParam(), 1);
    const int me = rocl_init();
    ASSERT_GT(me, 0);
    const int to = static_cast<int>(theirs.id());
    const auto send = [&](int bytes) {
        void* const out = rocl_bfget(bytes);
        std::memset(out, 'c', static_cast<std::size_t>(bytes));
        ASSERT_EQ(rocl_send(me, to, 1, out, bytes), 0);
        ASSERT_EQ(rocl_bftoret(out), 0);
    };
    future<void> echoes = echo();
    const auto round = [&] {
        send(8);
        void* in = nullptr;
        int got = 0;
        ASSERT_EQ(rocl_recv(me, to, ROCL_ANY, &in, nullptr, nullptr, &got, -1), 0);
        ASSERT_EQ(got, 8);
        ASSERT_EQ(rocl_bfret(in), 0);
    };
    EXPECT_LT(of_the_second(round), a_few);
    send(0);
    echoes.get();
    EXPECT_EQ(rocl_exit(), 0);
    ::unsetenv("AMALGAM_DIRECTORY");
    ::unsetenv("AMALGAM_PORTS");
}

}  // namespace
}  // namespace amalgam::memory
