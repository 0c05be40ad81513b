#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>
#include <amalgam/rpc/client_stream.hpp>
#include <amalgam/rpc/describe.hpp>
#include <amalgam/rpc/provider.hpp>
#include <amalgam/rpc/stream_reader.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/ult.hpp>

#include "rpc/core/core.hpp"
#include "rpc/loop_pair.hpp"
#include "rpc/streaming/client_streams_testing.hpp"

// Streams of values from a caller to its handler.
namespace amalgam {
namespace {

TEST(client_stream, the_handler_reads_what_is_sent_and_answers_once) {
    loop_pair two;
    two.server.define("sum", add_up);
    two.client.define("sum", add_up);
    two.in_client([&] {
        for (const std::string& where : {two.server.address(), two.client.address()}) {
            auto up = two.client.procedure<sum_of>("sum").on(where).open(1000);
            for (int i = 0; i < 300; ++i)
                EXPECT_TRUE(up.send(i));
            EXPECT_EQ(up.get(), 1000 + 299 * 150);
        }
    });
    expect_quiet(two.server, two.client);
    EXPECT_EQ(two.net.open_operations(), 0u);
}

TEST(client_stream, signatures_name_the_types_of_values) {
    loop_pair two;
    EXPECT_EQ(two.client.procedure<sum_of>("sum").signature(), "i32(stream<i32>,i32)");
    EXPECT_EQ(two.client.procedure<echo>("echo").signature(), "stream<string>(stream<string>)");
    two.server.define("sum", add_up);
    two.in_client([&] {
        EXPECT_EQ(describe(two.client, two.there()).front().signature, "i32(stream<i32>,i32)");
        auto wrong = two.client.procedure<int(streaming<long>, int)>("sum").on(two.there()).open(1);
        EXPECT_FALSE(wrong.send(1));
        EXPECT_EQ(error_of([&] { wrong.get(); }).code(), errc::mismatch);
    });
    expect_quiet(two.server, two.client);
}

TEST(client_stream, values_of_any_size_arrive_in_order_at_every_window) {
    for (const bool checked : {false, true}) {
        loop_network net({.max_message_bytes = 300'000});
        const engine_options how{.encoding = checked ? encoding::xdr : encoding::native,
                                 .checksum = checked};
        engine server{net.port("server"), how}, client{net.port("client"), how};
        const auto read = [](stream_reader<std::string>& in, std::uint32_t window) {
            in.window(window);
            std::vector<std::size_t> got;
            for (const std::string& each : in) {
                EXPECT_EQ(each, std::string(each.size(), static_cast<char>(each.size() % 26)));
                got.push_back(each.size());
            }
            return got;
        };
        server.define("lengths", read);
        client.define("lengths", read);
        seeded_random random(checked);
        auto done = client.spawn([&] {
            for (int round = 0; round < 12; ++round) {
                const auto& where = round % 3 == 0 ? client.address() : server.address();
                auto up = client.procedure<lengths>("lengths").on(where).open(
                    static_cast<std::uint32_t>(1 + random.below(20)));
                std::vector<std::size_t> model;
                for (std::uint64_t i = random.below(40); i > 0; --i) {
                    const std::size_t bytes =
                        random.chance(0.2) ? 100'000 + random.below(900'000) : random.below(3000);
                    EXPECT_TRUE(up.send(std::string(bytes, static_cast<char>(bytes % 26))));
                    model.push_back(bytes);
                }
                EXPECT_EQ(up.get(), model);
            }
        });
        net.run_until_idle();
        done.get();
        expect_quiet(server, client);
        EXPECT_EQ(net.open_operations(), 0u);
    }
}

TEST(client_stream, a_handler_that_does_not_read_holds_the_sender_back) {
    loop_pair two;
    event go_on;
    two.server.define("sum", [&](stream_reader<int>& in, int start) {
        in.window(8);
        start += *in.next();
        go_on.wait();
        return add_up(in, start);
    });
    int sent = 0;
    std::optional<client_stream<int, int>> up;
    auto done = two.client.spawn([&] {
        up = two.client.procedure<sum_of>("sum").on(two.there()).open(0);
        for (; sent < 100; ++sent)
            EXPECT_TRUE(up->send(1));
        return up->get();
    });
    two.net.run_until_idle();
    EXPECT_EQ(sent, 8);
    go_on.set();
    two.net.run_until_idle();
    EXPECT_EQ(done.get(), 100);
}

TEST(client_stream, no_value_leaves_before_the_handler_reads) {
    loop_pair two;
    event go_on;
    two.server.define("sum", [&](stream_reader<int>& in, int start) {
        go_on.wait();
        return add_up(in, start);
    });
    bool sent = false;
    auto done = two.client.spawn([&] {
        auto up = two.client.procedure<sum_of>("sum").on(two.there()).open(0);
        EXPECT_TRUE(up.send(5));
        sent = true;
        return up.get();
    });
    two.net.run_until_idle();
    EXPECT_FALSE(sent);
    go_on.set();
    two.net.run_until_idle();
    EXPECT_EQ(done.get(), 5);
}

TEST(client_stream, a_handler_that_returns_early_ends_the_senders_wait) {
    for (const int reads : {0, 1, 3}) {
        loop_pair two;
        two.server.define("first", [&](stream_reader<int>& in, int start) {
            in.window(2);
            for (int i = 0; i < reads; ++i)
                start += *in.next();
            return start;
        });
        two.in_client([&] {
            auto up = two.client.procedure<sum_of>("first").on(two.there()).open(0);
            int sent = 0;
            while (up.send(1))
                ++sent;
            EXPECT_GE(sent, reads);
            EXPECT_LE(sent, reads + 2);
            EXPECT_FALSE(up.send(1));
            EXPECT_EQ(up.get(), reads);
        });
        expect_quiet(two.server, two.client);
    }
}

TEST(client_stream, an_empty_one_and_one_finished_before_it_is_read_end_the_reader) {
    loop_pair two;
    two.server.define("sum", add_up);
    two.in_client([&] {
        EXPECT_EQ(two.client.procedure<sum_of>("sum").on(two.there()).open(7).get(), 7);
        auto up = two.client.procedure<sum_of>("sum").on(two.there()).open(1);
        up.finish();
        up.finish();
        EXPECT_EQ(error_of([&] { up.send(1); }).code(), errc::invalid);
        EXPECT_EQ(up.result().wait(), errc::ok);
        EXPECT_EQ(up.get(), 1);
        EXPECT_EQ(error_of([&] { up.get(); }).code(), errc::invalid);
        up.cancel();
    });
    expect_quiet(two.server, two.client);
}

TEST(client_stream, one_that_was_moved_from_says_so) {
    loop_pair two;
    two.server.define("sum", add_up);
    two.in_client([&] {
        auto up = two.client.procedure<sum_of>("sum").on(two.there()).open(1);
        auto taken = std::move(up);
        EXPECT_EQ(error_of([&] { up.send(1); }).code(), errc::invalid);
        up.finish();
        up.cancel();
        EXPECT_TRUE(taken.send(2));
        EXPECT_EQ(taken.get(), 3);
    });
}

TEST(client_stream, results_of_nothing_and_providers_work_too) {
    struct adder {
        int sum = 0;
        void add(stream_reader<int>& in) { sum = add_up(in, sum); }
    };
    loop_pair two;
    auto object = std::make_shared<adder>();
    provider<adder> mine(two.server, "adder", object, {.provider = 3});
    mine.define("add", &adder::add);
    two.in_client([&] {
        auto up = two.client.procedure<void(streaming<int>)>("add").on(two.there(), 3).open();
        up.send(1);
        up.send(2);
        up.get();
    });
    EXPECT_EQ(object->sum, 3);
}

// ---- memory of the handler's engine

TEST(client_stream, large_values_are_fetched_one_at_a_time_as_they_are_read) {
    loop_pair two;
    int read = 0;
    event go_on;
    two.server.define("lengths", [&](stream_reader<std::string>& in, std::uint32_t) {
        std::vector<std::size_t> got;
        while (const auto each = in.next()) {
            got.push_back(each->size());
            if (++read == 1) go_on.wait();
        }
        return got;
    });
    int sent = 0;
    auto done = two.client.spawn([&] {
        auto up = two.client.procedure<lengths>("lengths").on(two.there()).open(0);
        for (; sent < 20; ++sent)
            EXPECT_TRUE(up.send(std::string(200'000, 'l')));
        return up.get();
    });
    two.net.run_until_idle();
    EXPECT_EQ(read, 1);
    EXPECT_EQ(sent, 2);  // The one in hand, and one that is here for next().
    EXPECT_EQ(two.client.core().loans().size().value(), 1u);
    go_on.set();
    two.net.run_until_idle();
    EXPECT_EQ(done.get(), std::vector<std::size_t>(20, 200'000));
    expect_quiet(two.server, two.client);
}

TEST(client_stream, readers_together_grant_no_more_than_max_reader_bytes) {
    loop_network net;
    const std::size_t most = 2'000'000;
    engine server{net.port("server"), {.max_reader_bytes = most}}, client{net.port("client")};
    event go_on;
    server.define("sum", [&](stream_reader<int>& in, int start) {
        start += *in.next();
        go_on.wait();
        return add_up(in, start);
    });
    std::vector<int> sent(20);
    std::vector<future<int>> all;
    for (int& mine : sent) {
        all.push_back(client.spawn([&] {
            auto up = client.procedure<sum_of>("sum").on(server.address()).open(0);
            for (; mine < 200; ++mine)
                EXPECT_TRUE(up.send(1));
            return up.get();
        }));
    }
    net.run_until_idle();
    const std::size_t eager = server.core().outbox().eager_bytes(server.lookup(client.address()));
    EXPECT_LE(server.core().value_streams().reserved(), most + sent.size() * eager);
    EXPECT_EQ(counters_of(server)["rpc.reader_bytes"], server.core().value_streams().reserved());
    EXPECT_LE(*std::min_element(sent.begin(), sent.end()), 2);
    go_on.set();
    net.run_until_idle();
    for (auto& each : all)
        EXPECT_EQ(each.get(), 200);
    expect_quiet(server, client);
}

TEST(client_stream, a_value_that_is_more_than_the_handlers_engine_takes_ends_the_reader) {
    loop_network net;
    engine server{net.port("server"), {.max_values_bytes = 500'000}}, client{net.port("client")};
    errc seen = errc::ok;
    server.define("lengths", [&](stream_reader<std::string>& in, std::uint32_t) {
        std::vector<std::size_t> got;
        try {
            while (const auto each = in.next())
                got.push_back(each->size());
        } catch (const error& why) {
            seen = why.code().code;
        }
        return got;
    });
    auto done = client.spawn([&] {
        auto up = client.procedure<lengths>("lengths").on(server.address()).open(0);
        EXPECT_TRUE(up.send(std::string(400'000, 'l')));
        EXPECT_FALSE(up.send(std::string(600'000, 'l')));
        return up.get();
    });
    net.run_until_idle();
    EXPECT_EQ(done.get(), std::vector<std::size_t>{400'000});
    EXPECT_EQ(seen, errc::too_large);
    expect_quiet(server, client);
}

// ---- what is refused

TEST(client_stream, a_window_is_set_before_the_first_value) {
    loop_pair two;
    errc seen = errc::ok;
    two.server.define("sum", [&](stream_reader<int>& in, int start) {
        in.window(0);  // At least 1.
        start += *in.next();
        seen = error_of([&] { in.window(5); }).code().code;
        return start;
    });
    two.in_client([&] {
        auto up = two.client.procedure<sum_of>("sum").on(two.there()).open(0);
        EXPECT_TRUE(up.send(4));
        EXPECT_EQ(up.get(), 4);
    });
    EXPECT_EQ(seen, errc::invalid);
}

TEST(client_stream, handlers_that_cannot_wait_or_have_no_types_are_refused) {
    loop_pair two;
    const error inline_one =
        error_of([&] { two.server.define("sum", add_up, {.run = handler::inline_}); });
    EXPECT_EQ(inline_one.code(), errc::invalid);
    EXPECT_NE(std::string(inline_one.what()).find("reads a stream"), std::string::npos);
    const auto raw = [](const raw_call&) { return raw_values::of(1); };
    EXPECT_EQ(error_of([&] { two.server.define_raw("sum", "i32(stream<i32>,i32)", raw); }).code(),
              errc::unsupported);
    two.server.define_any(raw);
    two.in_client([&] {
        EXPECT_EQ(error_of([&] {
                      two.client.call_raw(two.there(), "sum", "i32(stream<i32>,i32)",
                                          raw_values::of(1));
                  }).code(),
                  errc::unsupported);
        auto up = two.client.procedure<sum_of>("sum").on(two.there()).open(0);
        EXPECT_FALSE(up.send(1));
        const error why = error_of([&] { up.get(); });
        EXPECT_EQ(why.code(), errc::unsupported);
        EXPECT_NE(std::string(why.what()).find("reads a stream"), std::string::npos) << why.what();
    });
}

TEST(client_stream, a_thread_that_cannot_wait_is_told) {
    loop_pair two;
    two.server.define("sum", add_up);
    auto up = two.client.procedure<sum_of>("sum").on(two.there()).open(0);
    EXPECT_EQ(error_of([&] { up.send(1); }).code(), errc::invalid);
    two.in_client([&] {
        EXPECT_TRUE(up.send(2));
        EXPECT_EQ(up.get(), 2);
    });
}

}  // namespace
}  // namespace amalgam
