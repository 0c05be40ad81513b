#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "rpc/core/core.hpp"
#include "rpc/loop_pair.hpp"

// Streams and large values, on the deterministic network.

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
    EXPECT_EQ(two.server.core().server().running(), 0u);
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
        EXPECT_EQ(two.server.core().server().running(), 0u) << how;
    }
}

TEST(streamed, one_that_was_moved_from_says_so) {
    loop_pair net;
    net.server.define("count", [](stream_writer<int>& out) { out(1); });
    net.in_client([&] {
        auto values = net.client.procedure<streamed<int>()>("count").on(net.there())();
        auto taken = std::move(values);
        const error why = error_of([&] { (void)values.next(); });
        EXPECT_EQ(why.code().code, errc::invalid);
        values.cancel();  // Has no effect.
        EXPECT_EQ(taken.next(), 1);
    });
}

TEST(streamed, an_inline_handler_cannot) {
    loop_pair two;
    EXPECT_EQ(error_of([&] {
                  two.server.define("s", [](stream_writer<int>&) {}, {.run = handler::inline_});
              }).code(),
              errc::invalid);
}

void stream_texts(stream_writer<std::string>& out, const std::vector<std::size_t>& sizes) {
    for (const std::size_t each : sizes)
        out(std::string(each, static_cast<char>('a' + each % 26)));
}
using text_stream = streamed<std::string>(std::vector<std::size_t>);

TEST(streamed, values_of_any_size_come_in_order) {
    for (const bool checksum : {false, true}) {
        loop_network net({.max_message_bytes = 300'000});
        engine server{net.port("server")};
        engine client{net.port("client"), {.checksum = checksum}};
        server.define("texts", stream_texts);
        client.define("texts", stream_texts);
        const std::vector<std::size_t> sizes{5, 1'000'000, 7, 150'000, 150'001, 0, 299'999};
        auto done = client.spawn([&] {
            for (const std::string& where : {server.address(), client.address()}) {
                std::vector<std::size_t> got;
                for (const std::string& text :
                     client.procedure<text_stream>("texts").on(where)(sizes)) {
                    got.push_back(text.size());
                    EXPECT_EQ(text,
                              std::string(text.size(), static_cast<char>('a' + text.size() % 26)));
                }
                EXPECT_EQ(got, sizes);
            }
        });
        net.run_until_idle();
        done.get();
        EXPECT_EQ(server.core().loans().size().value(), 0u);
        EXPECT_EQ(client.core().loans().size().value(), 0u);
        EXPECT_EQ(net.open_operations(), 0u);
    }
}

TEST(streamed, large_values_go_one_at_a_time_and_as_many_as_were_asked_for) {
    loop_pair two;
    two.net.delay(10us);
    std::size_t written = 0;
    two.server.define("large", [&](stream_writer<std::string>& out) {
        for (;; ++written)
            out(std::string(200'000, 'l'));
    });
    auto values =
        two.client.procedure<streamed<std::string>()>("large").on(two.there()).window(3)();
    std::size_t most_lent = 0;
    for (int i = 0; i < 200; ++i) {
        two.net.run_for(10us);
        most_lent = std::max<std::size_t>(most_lent, two.server.core().loans().size().value());
    }
    EXPECT_EQ(written, 3u);
    EXPECT_EQ(most_lent, 1u);
    values.cancel();
    two.net.run_until_idle();
}

TEST(streamed, a_large_value_is_released_whatever_ends_the_call_in_between) {
    for (int moment = 0; moment < 60; ++moment) {
        loop_network net;
        net.delay(10us);
        engine server{net.port("server")}, client{net.port("client")};
        errc seen = errc::ok;
        server.define("large", [&](stream_writer<std::string>& out) {
            try {
                for (;;)
                    out(std::string(200'000, 'l'));
            } catch (const error& why) {
                seen = why.code().code;
                throw;
            }
        });
        const auto when = std::chrono::microseconds(4 * moment);
        auto large =
            client.procedure<streamed<std::string>()>("large").on(server.address()).window(4);
        if (moment % 5 == 4) large = large.within(when);
        std::optional<streamed<std::string>> values(large());
        net.run_for(when);
        if (moment % 5 == 0) net.kill("server");
        if (moment % 5 == 1) net.kill("client");
        if (moment % 5 == 2) values->cancel();
        if (moment % 5 == 3) values.reset();
        net.run_until_idle();
        if (moment % 5 != 1) {
            EXPECT_EQ(client.core().transfers().pending(), 0u) << moment;
        }
        if (moment > 10) {
            EXPECT_EQ(seen, errc::canceled) << moment;
        }
        EXPECT_EQ(server.core().server().running(), 0u) << moment;
        EXPECT_EQ(server.core().loans().size().value(), 0u) << moment;
    }
}

TEST(streamed, a_value_that_is_more_than_the_reader_takes_ends_the_call) {
    loop_network net;
    engine server{net.port("server")};
    engine client{net.port("client"), {.max_values_bytes = 500'000}};
    server.define("texts", stream_texts);
    auto done = client.spawn([&] {
        auto texts =
            client.procedure<text_stream>("texts").on(server.address())({400'000, 600'000, 1});
        EXPECT_EQ(texts.next()->size(), 400'000u);
        EXPECT_EQ(error_of([&] { texts.next(); }).code(), errc::too_large);
    });
    net.run_until_idle();
    done.get();
    EXPECT_EQ(server.core().loans().size().value(), 0u);
    EXPECT_EQ(server.core().server().running(), 0u);
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
    EXPECT_EQ(client.core().loans().size().value(), 0u);
    EXPECT_EQ(server.core().loans().size().value(), 0u);
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
            EXPECT_EQ(client.core().loans().size().value(), 0u) << faults;
        }
        if (faults % 3 != 0) {
            EXPECT_EQ(server.core().loans().size().value(), 0u) << faults;
        }
        EXPECT_EQ(server.core().server().running(), 0u) << faults;
    }
}

std::shared_ptr<const std::vector<std::byte>> bytes_of(std::size_t number) {
    auto made = std::make_shared<std::vector<std::byte>>(number);
    for (std::size_t i = 0; i < number; ++i)
        (*made)[i] = static_cast<std::byte>(number + i * 7);
    return made;
}

using note_bytes = void(std::uint32_t, std::span<const std::byte>);

TEST(held_bytes, arrive_whole_and_in_order_and_are_let_go) {
    const std::vector<std::size_t> sizes{0,      1,      2'047,   2'048,  5,
                                         70'000, 30'000, 299'999, 30'000, 1'000'000};
    for (const bool checksum : {false, true}) {
        for (const encoding as : {encoding::native, encoding::xdr}) {
            loop_network net({.max_message_bytes = 300'000, .link_bytes = 100'000});
            const engine_options how{.encoding = as, .checksum = checksum};
            engine server{net.port("server"), how}, client{net.port("client"), how};
            std::vector<std::size_t> got;
            const auto note = [&](std::uint32_t i, std::span<const std::byte> bytes) {
                got.push_back(bytes.size());
                const auto expected = bytes_of(sizes.at(i));
                EXPECT_TRUE(
                    std::equal(bytes.begin(), bytes.end(), expected->begin(), expected->end()))
                    << i;
            };
            server.define("note", note);
            client.define("note", note);
            std::vector<std::weak_ptr<const void>> owners;
            auto done = client.spawn([&] {
                for (const std::string& where : {server.address(), client.address()}) {
                    for (std::uint32_t i = 0; i < sizes.size(); ++i) {
                        auto bytes = bytes_of(sizes[i]);
                        owners.push_back(bytes);
                        client.procedure<note_bytes>("note").on(where).post_held(bytes, i, *bytes);
                    }
                }
            });
            net.run_until_idle();
            done.get();
            EXPECT_EQ(std::count(got.begin(), got.end(), 299'999), 2);
            EXPECT_EQ(std::count(got.begin(), got.end(), 1'000'000), 2);
            std::vector<std::size_t> expected = sizes;
            expected.insert(expected.end(), sizes.begin(), sizes.end());
            // Values larger than a message may be overtaken.
            const auto is_large = [](std::size_t bytes) { return bytes > 200'000; };
            std::erase_if(expected, is_large);
            std::erase_if(got, is_large);
            EXPECT_EQ(got, expected) << "to the server, then to oneself";
            for (const auto& owner : owners)
                EXPECT_TRUE(owner.expired());
        }
    }
}

TEST(held_bytes, are_let_go_when_their_peer_or_the_engine_ends) {
    for (const bool kill : {false, true}) {
        loop_network net({.link_bytes = 10'000});
        engine server{net.port("server")}, client{net.port("client")};
        server.define("note", [](std::uint32_t, std::span<const std::byte>) {});
        const auto note = client.procedure<note_bytes>("note").on(server.address());
        std::weak_ptr<const void> owner;
        auto done = client.spawn([&] {
            note.post(0, {});
            this_task::sleep_for(1ms);
            net.cut("server");
            auto bytes = bytes_of(100'000);
            owner = bytes;
            for (std::uint32_t i = 0; i < 10; ++i)
                note.post_held(bytes, i, *bytes);
        });
        net.run_for(2ms);
        EXPECT_FALSE(owner.expired());
        kill ? net.kill("server") : client.stop();
        net.run_until_idle();
        EXPECT_TRUE(owner.expired()) << kill;
    }
}

}  // namespace
}  // namespace amalgam
