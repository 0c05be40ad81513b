#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "rpc/engine_core.hpp"
#include "rpc/loop_pair.hpp"

// Many values and large ones, on the deterministic network.

namespace amalgam {
namespace {

using namespace std::chrono_literals;

// ---- streams

TEST(streamed, values_come_in_order_to_the_end) {
    loop_pair two;
    two.server.define("count", [](stream_writer<int>& out, int from, int to) {
        for (int i = from; i < to; ++i)
            out(i);
    });
    auto count = two.client.procedure<streamed<int>(int, int)>("count");
    EXPECT_EQ(count.signature(), "stream<i32>(i32,i32)");
    two.in_client([&] {
        for (const int values : {0, 1, 64, 1000}) {
            std::vector<int> got;
            for (int each : count.on(two.there())(3, 3 + values))
                got.push_back(each);
            std::vector<int> expected(static_cast<std::size_t>(values));
            std::iota(expected.begin(), expected.end(), 3);
            EXPECT_EQ(got, expected);
        }
    });
    EXPECT_EQ(two.net.open_operations(), 0u);
}

TEST(streamed, a_reader_that_does_not_read_holds_the_handler_back) {
    loop_pair two;
    int written = 0;
    two.server.define("numbers", [&](stream_writer<std::string>& out) {
        for (; written < 100; ++written)
            out(std::to_string(written));
    });
    auto numbers = two.client.procedure<streamed<std::string>()>("numbers").on(two.there());
    streamed<std::string> some = numbers.window(8)();
    two.net.run_until_idle();
    EXPECT_EQ(written, 8);
    two.in_client([&] {
        for (int i = 0; i < 5; ++i)
            EXPECT_EQ(some.next(), std::to_string(i));
    });
    EXPECT_GT(written, 8);
    EXPECT_LE(written, 5 + 8);
    two.in_client([&] {
        int rest = 0;
        while (some.next())
            ++rest;
        EXPECT_EQ(rest, 95);
    });
}

TEST(streamed, leaving_early_ends_the_handlers_next_write) {
    loop_pair two;
    errc seen = errc::ok;
    two.server.define("for_ever", [&](stream_writer<int>& out) {
        try {
            for (int i = 0;; ++i)
                out(i);
        } catch (const error& why) {
            seen = why.code().code;
            throw;
        }
    });
    two.in_client([&] {
        auto endless = two.client.procedure<streamed<int>()>("for_ever").on(two.there())();
        EXPECT_EQ(endless.next(), 0);
        EXPECT_EQ(endless.next(), 1);
    });
    EXPECT_EQ(seen, errc::canceled);
    EXPECT_EQ(two.server.core().serves().running(), 0u);
    EXPECT_EQ(two.net.open_operations(), 0u);
}

TEST(streamed, a_failure_comes_after_the_values_before_it) {
    loop_pair two;
    two.server.define("three", [](stream_writer<int>& out) {
        for (int i = 0; i < 3; ++i)
            out(i);
        throw std::runtime_error("no more");
    });
    two.in_client([&] {
        auto three = two.client.procedure<streamed<int>()>("three").on(two.there())();
        for (int i = 0; i < 3; ++i)
            EXPECT_EQ(three.next(), i);
        const error why = error_of([&] { three.next(); });
        EXPECT_EQ(why.code(), errc::handler_failed);
        EXPECT_NE(std::string(why.what()).find("no more"), std::string::npos);
    });
}

TEST(streamed, peer_loss_deadline_and_cancel_end_it_once) {
    for (const char* how : {"kill", "deadline", "cancel"}) {
        loop_pair two;
        two.server.define("slow", [](stream_writer<int>& out) {
            for (int i = 0;; ++i) {
                out(i);
                this_task::sleep_for(10ms);
            }
        });
        auto slow = two.client.procedure<streamed<int>()>("slow").on(two.there());
        if (how == std::string("deadline")) slow = slow.within(25ms);
        auto values = slow();
        two.net.run_for(22ms);
        if (how == std::string("kill")) two.net.kill("server");
        if (how == std::string("cancel")) values.cancel();
        two.net.run_until_idle();
        auto reader = two.client.spawn([&] {
            while (values.next()) {
            }
        });
        two.net.run_until_idle();
        const errc expected = how == std::string("kill")       ? errc::disconnected
                              : how == std::string("deadline") ? errc::timed_out
                                                               : errc::canceled;
        EXPECT_EQ(reader.wait().code, expected) << how;
        EXPECT_EQ(two.server.core().serves().running(), 0u) << how;
    }
}

TEST(streamed, an_inline_handler_cannot) {
    loop_pair two;
    EXPECT_EQ(error_of([&] {
                  two.server.define("s", [](stream_writer<int>&) {}, {.run = handler::inline_});
              }).code(),
              errc::invalid);
}

// ---- any size

TEST(any_size, arguments_and_results_past_the_eager_limit) {
    loop_network net({.max_message_bytes = 300'000});
    engine server{net.port("server")}, client{net.port("client")};
    server.define("echo", [](std::string text) { return text; });
    server.define("echo_inline", [](std::string text) { return text; }, {.run = handler::inline_});
    std::size_t noted = 0;
    server.define("note", [&](std::string text) { noted += text.size(); });
    auto done = client.spawn([&] {
        for (const std::size_t bytes : {65'000u, 66'000u, 299'999u, 1'000'000u, 5'000'000u}) {
            const std::string text(bytes, static_cast<char>('a' + bytes % 26));
            EXPECT_EQ(client.procedure<std::string(std::string)>("echo").on(server.address())(text),
                      text);
            EXPECT_EQ(client.procedure<std::string(std::string)>("echo_inline")
                          .on(server.address())(text),
                      text);
            client.procedure<void(std::string)>("note").on(server.address()).post(text);
        }
    });
    net.run_until_idle();
    done.get();
    EXPECT_EQ(noted, 65'000u + 66'000u + 299'999u + 1'000'000u + 5'000'000u);
    EXPECT_EQ(client.core().lending().size().value(), 0u);
    EXPECT_EQ(server.core().lending().size().value(), 0u);
    EXPECT_EQ(net.open_operations(), 0u);
}

TEST(any_size, nothing_is_kept_when_an_end_comes_in_between) {
    const std::string large(1'000'000, 'l');
    for (int faults = 0; faults < 40; ++faults) {
        loop_network net;
        engine server{net.port("server")}, client{net.port("client")};
        server.define("echo", [](std::string text) { return text; });
        auto echo = client.procedure<std::string(std::string)>("echo").on(server.address());
        future<std::string> call = echo.start(large);
        client.procedure<std::string(std::string)>("echo").on(server.address()).post(large);
        net.run_for(std::chrono::microseconds(20 * faults));
        switch (faults % 3) {
            case 0:
                net.kill("server");
                break;
            case 1:
                net.kill("client");
                break;
            default:
                call.cancel();
        }
        net.run_until_idle();
        EXPECT_TRUE(call.ready());
        if (faults % 3 != 1) {
            EXPECT_EQ(client.core().lending().size().value(), 0u) << faults;
        }
        if (faults % 3 != 0) {
            EXPECT_EQ(server.core().lending().size().value(), 0u) << faults;
        }
        EXPECT_EQ(server.core().serves().running(), 0u) << faults;
    }
}

}  // namespace
}  // namespace amalgam
