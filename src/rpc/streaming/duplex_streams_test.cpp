#include <chrono>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include <amalgam/rpc/client_stream.hpp>
#include <amalgam/rpc/stream_reader.hpp>
#include <amalgam/tasks/ult.hpp>

#include "rpc/loop_pair.hpp"
#include "rpc/streaming/client_streams_testing.hpp"

// Streams of values both ways.
namespace amalgam {
namespace {

TEST(duplex_stream, both_ends_send_at_their_own_pace) {
    loop_pair two;
    two.server.define("echo", echo_all);
    two.client.define("echo", echo_all);
    two.in_client([&] {
        for (const std::string& where : {two.server.address(), two.client.address()}) {
            auto both = two.client.procedure<echo>("echo").on(where).window(3).open();
            for (int i = 0; i < 100; ++i) {  // Turn by turn.
                EXPECT_TRUE(both.send(std::to_string(i)));
                EXPECT_EQ(both.next(), std::to_string(i));
            }
            auto sender = two.client.spawn([&] {
                for (int i = 0; i < 500; ++i)
                    EXPECT_TRUE(both.send(std::string(i % 50 == 0 ? 150'000 : i, 'd')));
                both.finish();
            });
            int i = 0;
            for (const std::string& each : both) {
                EXPECT_EQ(each.size(), i % 50 == 0 ? 150'000u : static_cast<unsigned>(i));
                ++i;
            }
            EXPECT_EQ(i, 500);
            sender.get();
        }
    });
    expect_quiet(two.server, two.client);
    EXPECT_EQ(two.net.open_operations(), 0u);
}

TEST(duplex_stream, a_handler_that_ends_first_ends_the_sender_and_the_reader) {
    loop_pair two;
    two.server.define("echo", [](stream_reader<std::string>& in, stream_writer<std::string>& out) {
        out(*in.next() + "!");
        out("and no more");
    });
    two.in_client([&] {
        auto both = two.client.procedure<echo>("echo").on(two.there()).open();
        EXPECT_TRUE(both.send("one"));
        while (both.send("more")) {
        }
        EXPECT_EQ(both.next(), "one!");
        EXPECT_EQ(both.next(), "and no more");
        EXPECT_EQ(both.next(), std::nullopt);
    });
    expect_quiet(two.server, two.client);
}

TEST(duplex_stream, whatever_ends_the_call_ends_both_directions_once) {
    for (int moment = 0; moment < 100; ++moment) {
        loop_network net;
        net.delay(10us);
        engine server{net.port("server")}, client{net.port("client")};
        server.define("echo", echo_all);
        const auto when = std::chrono::microseconds(4 * moment);
        auto call = client.procedure<echo>("echo").on(server.address()).window(2);
        if (moment % 5 == 4) call = call.within(when);
        std::optional<duplex_stream<std::string, std::string>> both(call.open());
        auto sender = client.spawn([&] {
            while (both->send(std::string(moment % 2 == 0 ? 5 : 200'000, 'd'))) {
            }
        });
        auto reader = client.spawn([&] {
            while (both->next()) {
            }
        });
        net.run_for(when);
        if (moment % 5 == 0) net.kill("server");
        if (moment % 5 == 1) net.kill("client");
        if (moment % 5 == 2) both->cancel();
        if (moment % 5 == 3) server.stop();
        net.run_until_idle();
        EXPECT_TRUE(sender.ready()) << moment;
        EXPECT_FALSE(reader.wait().ok()) << moment;
        both.reset();
        net.run_until_idle();
        SCOPED_TRACE(moment);
        expect_nothing_left(client, server);
    }
}

TEST(duplex_stream, leaving_it_cancels_the_handler) {
    loop_pair two;
    errc seen = errc::ok;
    two.server.define("echo", [&](stream_reader<std::string>& in, stream_writer<std::string>& out) {
        try {
            echo_all(in, out);
        } catch (const error& why) {
            seen = why.code().code;
            throw;
        }
    });
    two.in_client([&] {
        auto both = two.client.procedure<echo>("echo").on(two.there()).open();
        EXPECT_TRUE(both.send("one"));
        EXPECT_EQ(both.next(), "one");
    });
    EXPECT_EQ(seen, errc::canceled);
    expect_quiet(two.server, two.client);
}

}  // namespace
}  // namespace amalgam
