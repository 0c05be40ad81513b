#include <memory>
#include <string>

#include <gtest/gtest.h>

#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/interceptor.hpp>

#include "memory/memory.hpp"
#include "tasks/stacks/sanitizer.hpp"

// Heap allocations of a call in steady state: none, on either side.

namespace amalgam {
namespace {

class call_allocations : public testing::TestWithParam<const char*> {
protected:
    void SetUp() override {
        if (detail::sanitized) GTEST_SKIP() << "small blocks are not pooled under sanitizers";
        server.define("sum", [](int a, int b) { return a + b; });
        server.define("length", [](std::string_view text) { return text.size(); });
        server.define("short", [](std::string text) { return text; });
        server.define("inline", [](int a) { return a; }, {.run = handler::inline_});
        server.define("note", [](int) {});
    }

    template <typename Work>
    std::uint64_t in_steady_state(Work work) {
        return in_steady_state(client, work);
    }
    /// Heap allocations in 2000 rounds of `work`, in a ULT, after as many to warm up.
    template <typename Work>
    std::uint64_t in_steady_state(engine& where, Work work) {
        return where.run([&] {
            for (int i = 0; i < 2000; ++i)
                work();
            const std::uint64_t before = memory::allocations();
            for (int i = 0; i < 2000; ++i)
                work();
            return memory::allocations() - before;
        });
    }
    template <typename Signature>
    bound_procedure<Signature> at_server(const char* name) {
        return client.procedure<Signature>(name).on(there);
    }

    engine server{GetParam()};
    engine client{GetParam()};
    peer there = client.lookup(server.address());
};

INSTANTIATE_TEST_SUITE_P(shm, call_allocations, testing::Values("shm://"));
INSTANTIATE_TEST_SUITE_P(tcp, call_allocations, testing::Values("tcp://127.0.0.1:0"));

TEST_P(call_allocations, a_call_takes_none) {
    auto sum = at_server<int(int, int)>("sum");
    EXPECT_EQ(in_steady_state([&] { sum(1, 2); }), 0u);
    auto in = at_server<int(int)>("inline");
    EXPECT_EQ(in_steady_state([&] { in(1); }), 0u);
}

TEST_P(call_allocations, a_call_with_views_or_short_strings_takes_none) {
    auto length = at_server<std::size_t(std::string)>("length");
    const std::string text(180, 't');
    EXPECT_EQ(in_steady_state([&] { length(text); }), 0u);
    const std::string large(3000, 't');
    EXPECT_EQ(in_steady_state([&] { length(large); }), 0u);
    auto echo = at_server<std::string(std::string)>("short");
    EXPECT_EQ(in_steady_state([&] { echo("short"); }), 0u);
}

TEST_P(call_allocations, a_future_takes_none) {
    auto sum = at_server<int(int, int)>("sum");
    EXPECT_EQ(in_steady_state([&] {
                  future<int> a = sum.start(1, 2);
                  future<int> b = sum.start(3, 4);
                  return a.get() + b.get();
              }),
              0u);
}

TEST_P(call_allocations, a_call_that_tells_a_function_takes_none) {
    auto sum = at_server<int(int, int)>("sum");
    int told = 0;
    EXPECT_EQ(in_steady_state([&] {
                  sum.call_then([&](result<int> how) { told += *how; }, 1, 2);
                  sum(1, 2);
              }),
              0u);
    EXPECT_EQ(told, 3 * 4000);
}

TEST_P(call_allocations, a_deadline_takes_none) {
    auto sum = at_server<int(int, int)>("sum").within(std::chrono::seconds(60));
    EXPECT_EQ(in_steady_state([&] { sum(1, 2); }), 0u);
}

TEST_P(call_allocations, a_one_way_call_takes_none) {
    auto sum = at_server<int(int, int)>("sum");
    auto note = at_server<void(int)>("note");
    EXPECT_EQ(in_steady_state([&] {
                  note.post(1);
                  sum(1, 2);  // Keeps them from piling up.
              }),
              0u);
}

TEST_P(call_allocations, a_plain_threads_call_takes_none) {
    auto sum = at_server<int(int, int)>("sum");
    for (int i = 0; i < 2000; ++i)
        sum(1, 2);
    const std::uint64_t before = memory::allocations();
    for (int i = 0; i < 2000; ++i)
        sum(1, 2);
    EXPECT_EQ(memory::allocations() - before, 0u);
}

TEST_P(call_allocations, a_call_to_oneself_takes_none) {
    at_server<int(int)>("inline")(1);  // The client is connected by then.
    server.define("twice", [](int a) { return 2 * a; });
    auto twice = server.procedure<int(int)>("twice").on(server.address());
    EXPECT_EQ(in_steady_state(server, [&] { twice(1); }), 0u);
}

struct tenant_of_calls final : interceptor {
    void calling(outgoing_call& call) override { call.attach("tenant", "blue"); }
};

TEST_P(call_allocations, metadata_takes_one_for_its_bytes_at_each_end) {
    engine tagging(GetParam(), {.interceptors = {std::make_shared<tenant_of_calls>()}});
    const auto sum = tagging.procedure<int(int, int)>("sum").on(server.address());
    EXPECT_LE(in_steady_state(tagging, [&] { (void)sum(1, 2); }), 2u * 2000);
}

}  // namespace
}  // namespace amalgam
