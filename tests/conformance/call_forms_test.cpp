#include <atomic>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/interceptor.hpp>
#include <amalgam/tasks/coroutine.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/semaphore.hpp>

// Every form of call, over every transport, in native encoding and in XDR with checksums, from ULTs
// and from plain threads, to handlers on the engine's stream and elsewhere. Add a transport by its
// URIs below.

namespace amalgam {
namespace {

using namespace std::chrono_literals;

struct transport {
    const char* serves;
    const char* calls;
    friend void PrintTo(const transport& which, std::ostream* out) { *out << which.serves; }
};

engine_options options_for(bool xdr) {
    engine_options how;
    how.encoding = xdr ? encoding::xdr : encoding::native;
    how.checksum = xdr;
    how.drain = 200ms;
    return how;
}

class call_forms : public testing::TestWithParam<std::tuple<transport, bool>> {
protected:
    call_forms() {
        for (const std::uint16_t id : {std::uint16_t{0}, std::uint16_t{1}}) {
            const procedure_options here{.in = id == 0 ? nullptr : &elsewhere.main_pool(),
                                         .provider = id};
            server.define(
                "echo", [](std::string text) { return text; }, here);
            server.define(
                "where", [] { return call_context::current().provider(); }, here);
            server.define(
                "count",
                [](stream_writer<std::uint64_t>& out, std::uint64_t to) {
                    for (std::uint64_t i = 0; i < to; ++i)
                        out(i);
                },
                here);
            server.define(
                "grow",
                [](stream_writer<std::string>& out, std::size_t most) {
                    for (std::size_t bytes = 0; bytes <= most; bytes = 10 * bytes + 100)
                        out(std::string(bytes, 'g'));
                },
                here);
            server.define(
                "lengths",
                [](stream_reader<std::string>& in, std::uint32_t window) {
                    in.window(window);
                    std::vector<std::size_t> all;
                    for (const std::string& each : in)
                        all.push_back(each.size());
                    return all;
                },
                here);
            server.define(
                "back",
                [](stream_reader<std::string>& in, stream_writer<std::string>& out) {
                    for (const std::string& each : in)
                        out(each + "!");
                },
                here);
            server.define(
                "early",
                [this](responder<int> answer, int n) {
                    answer(n);
                    gone_on.wait();
                    ++went_on;
                },
                here);
            server.define(
                "late",
                [this](responder<std::string> answer, std::string text) {
                    std::thread([answer = std::move(answer), text]() mutable {
                        answer(text + " at last");
                    }).detach();
                    (void)this;
                },
                here);
            server.define(
                "note", [this](std::string text) { noted += text.size(); }, here);
            server.define(
                "hold", [this] { gone_on.wait(); }, here);
        }
    }
    ~call_forms() override { gone_on.set(); }

    template <typename Signature>
    bound_procedure<Signature> at(const char* name, std::uint16_t provider) {
        return client.procedure<Signature>(name).on(there, provider);
    }
    /// From a ULT of the client and from this thread, to both kinds of handlers.
    template <typename Work>
    void everywhere(Work work) {
        for (const std::uint16_t provider : {std::uint16_t{0}, std::uint16_t{1}}) {
            SCOPED_TRACE("provider " + std::to_string(provider));
            work(provider);
            client.run([&] { work(provider); });
        }
    }

    const transport how = std::get<0>(GetParam());
    std::atomic<std::size_t> noted{0};
    std::atomic<int> went_on{0};
    event gone_on;
    execution_stream elsewhere;
    engine server{how.serves, options_for(std::get<1>(GetParam()))};
    engine client{how.calls, options_for(std::get<1>(GetParam()))};
    peer there = client.lookup(server.address());
};

INSTANTIATE_TEST_SUITE_P(all, call_forms,
                         testing::Combine(testing::Values(transport{"shm://", "shm://"},
                                                          transport{"tcp://127.0.0.1:0", "tcp://"},
                                                          transport{"loop://call-forms-server",
                                                                    "loop://call-forms-client"}),
                                          testing::Bool()),
                         [](const auto& with) {
                             const std::string uri = std::get<0>(with.param).serves;
                             return uri.substr(0, uri.find(':')) +
                                    (std::get<1>(with.param) ? "_xdr" : "_native");
                         });

TEST_P(call_forms, blocking_of_any_size) {
    everywhere([this](std::uint16_t provider) {
        for (const std::size_t bytes : {0u, 1u, 300u, 20'000u, 70'000u, 3'000'000u}) {
            const std::string text(bytes, static_cast<char>('a' + bytes % 26));
            EXPECT_EQ(at<std::string(std::string)>("echo", provider)(text), text);
        }
        EXPECT_EQ(at<std::uint16_t()>("where", provider)(), provider);
        const auto none = at<void()>("none", provider).try_call();
        EXPECT_EQ(none.code(), errc::not_found);
    });
}

TEST_P(call_forms, behind_futures_and_coroutines) {
    everywhere([this](std::uint16_t provider) {
        std::vector<future<std::string>> all;
        for (std::size_t i = 0; i < 50; ++i) {
            all.push_back(
                at<std::string(std::string)>("echo", provider).start(std::string(i * 1000, 'f')));
        }
        for (std::size_t i = 0; i < all.size(); ++i)
            EXPECT_EQ(all[i].get().size(), i * 1000);
        const auto awaits = [&]() -> task<std::size_t> {
            const std::string text =
                co_await at<std::string(std::string)>("echo", provider).start("awaited");
            co_return text.size();
        };
        EXPECT_EQ(awaits().get(), 7u);
    });
}

TEST_P(call_forms, that_tell_a_function) {
    everywhere([this](std::uint16_t provider) {
        std::atomic<std::size_t> bytes{0};
        semaphore told{0};
        for (int i = 0; i < 50; ++i) {
            at<std::string(std::string)>("echo", provider)
                .call_then(
                    [&](result<std::string> how_it_ended) {
                        bytes += how_it_ended ? how_it_ended->size() : 0;
                        told.release();
                    },
                    std::string(1000, 't'));
        }
        told.acquire(50);
        EXPECT_EQ(bytes, 50'000u);
    });
}

TEST_P(call_forms, one_way_of_any_size) {
    std::size_t expected = 0;
    everywhere([&](std::uint16_t provider) {
        for (const std::size_t bytes : {1u, 5'000u, 100'000u, 2'000'000u}) {
            at<void(std::string)>("note", provider).post(std::string(bytes, 'n'));
            expected += bytes;
        }
    });
    while (noted != expected)
        std::this_thread::yield();
}

TEST_P(call_forms, answered_early_and_late) {
    int asked = 0;
    everywhere([&](std::uint16_t provider) {
        EXPECT_EQ(at<int(int)>("early", provider)(7), 7);
        ++asked;
        EXPECT_EQ(at<std::string(std::string)>("late", provider)("here"), "here at last");
        const std::string large(500'000, 'l');
        EXPECT_EQ(at<std::string(std::string)>("late", provider)(large).size(), 500'008u);
    });
    EXPECT_EQ(went_on, 0);
    gone_on.set();
    while (went_on != asked)
        std::this_thread::yield();
}

TEST_P(call_forms, answered_by_many_values) {
    everywhere([this](std::uint16_t provider) {
        for (const std::uint32_t window : {1u, 7u, 64u}) {
            std::uint64_t next = 0;
            for (const std::uint64_t each :
                 at<streamed<std::uint64_t>(std::uint64_t)>("count", provider)
                     .window(window)(500)) {
                ASSERT_EQ(each, next);
                ++next;
            }
            EXPECT_EQ(next, 500u);
        }
        std::size_t bytes = 0;
        for (const std::string& each :
             at<streamed<std::string>(std::size_t)>("grow", provider)(1'000'000)) {
            EXPECT_EQ(each, std::string(bytes, 'g'));
            bytes = 10 * bytes + 100;
        }
        EXPECT_GT(bytes, 1'000'000u);
        auto left = at<streamed<std::uint64_t>(std::uint64_t)>("count", provider)(1'000'000'000);
        EXPECT_EQ(left.next(), 0u);
    });
}

TEST_P(call_forms, that_send_many_values) {
    using lengths = std::vector<std::size_t>(streaming<std::string>, std::uint32_t);
    everywhere([this](std::uint16_t provider) {
        for (const std::uint32_t window : {1u, 7u, 64u}) {
            auto up = at<lengths>("lengths", provider).open(window);
            std::vector<std::size_t> sent;
            for (std::size_t i = 0; i < 300; ++i) {
                sent.push_back(i % 60 == 59 ? 10'000 * i : i);
                ASSERT_TRUE(up.send(std::string(sent.back(), 'u')));
            }
            EXPECT_EQ(up.get(), sent);
        }
        auto left = at<lengths>("lengths", provider).open(1);
        EXPECT_TRUE(left.send("and no more"));
    });
}

TEST_P(call_forms, that_send_and_receive_many_values) {
    everywhere([this](std::uint16_t provider) {
        auto both =
            at<streamed<std::string>(streaming<std::string>)>("back", provider).window(5).open();
        std::thread sender([&] {
            for (int i = 0; i < 500; ++i)
                EXPECT_TRUE(both.send(std::string(i % 100 == 99 ? 200'000 : i, 'd')));
            both.finish();
        });
        int i = 0;
        for (const std::string& each : both) {
            EXPECT_EQ(each.size(), i % 100 == 99 ? 200'001u : i + 1u);
            ++i;
        }
        sender.join();
        EXPECT_EQ(i, 500);
    });
}

TEST_P(call_forms, that_end_by_deadline_or_cancel) {
    everywhere([this](std::uint16_t provider) {
        EXPECT_EQ(at<void()>("hold", provider).within(5ms).try_call().code(), errc::timed_out);
        auto endless =
            at<streamed<std::string>(streaming<std::string>)>("back", provider).within(5ms).open();
        while (endless.send("more")) {  // Held back by answers that are not read.
        }
        const auto drain = [&] {
            while (endless.next()) {
            }
        };
        EXPECT_THROW(drain(), error);
        future<void> dropped = at<void()>("hold", provider).start();
        dropped.cancel();
        EXPECT_EQ(dropped.wait().code, errc::canceled);
    });
    const auto running = [this] {
        for (const counter_value& each : server.counters().snapshot()) {
            if (each.name == "rpc.running") return each.value;
        }
        return std::uint64_t{99};
    };
    while (running() != 0)  // Cancellation ends the handlers' waits.
        std::this_thread::yield();
}

TEST_P(call_forms, to_oneself) {
    everywhere([this](std::uint16_t provider) {
        auto echo =
            server.procedure<std::string(std::string)>("echo").on(server.address(), provider);
        for (const std::size_t bytes : {0u, 300u, 3'000'000u})
            EXPECT_EQ(echo(std::string(bytes, 's')).size(), bytes);
        auto count = server.procedure<streamed<std::uint64_t>(std::uint64_t)>("count").on(
            server.address(), provider);
        std::uint64_t sum = 0;
        for (const std::uint64_t each : count(100))
            sum += each;
        EXPECT_EQ(sum, 4950u);
        auto late =
            server.procedure<std::string(std::string)>("late").on(server.address(), provider);
        EXPECT_EQ(late("self"), "self at last");
    });
}

}  // namespace
}  // namespace amalgam
