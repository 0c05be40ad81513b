#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/raw_call.hpp>

#include "rpc/core/core.hpp"
#include "rpc/limits.hpp"
#include "rpc/loop_pair.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

/// A client that knows only a proxy, which knows only a server.
struct proxied {
    explicit proxied(engine_options of_client = {}, engine_options of_proxy = {})
        : proxy{net.port("proxy"), std::move(of_proxy)},
          client{net.port("client"), std::move(of_client)} {
        proxy.define_any([this](const raw_call& call) {
            names.emplace_back(call.name());
            return call.forward(there);
        });
    }

    loop_network net;
    engine server{net.port("server")};
    engine proxy;
    engine client;
    peer there = proxy.lookup(server.address());
    std::vector<std::string> names;

    template <typename Work>
    auto in_client(Work work) {
        auto done = client.spawn(std::move(work));
        net.run_until_idle();
        EXPECT_TRUE(done.ready());
        return done.get();
    }
    peer to_proxy() { return client.lookup(proxy.address()); }
};

TEST(raw_call, a_proxy_forwards_calls_whose_types_it_does_not_know) {
    proxied all;
    all.server.define("join", [](const std::vector<double>& numbers, std::string_view text) {
        return std::string(text) + std::to_string(numbers.size());
    });
    const auto join =
        all.client.procedure<std::string(std::vector<double>, std::string)>("join").on(
            all.to_proxy());
    all.in_client([&] {
        EXPECT_EQ(join({1, 2, 3}, "n"), "n3");
        EXPECT_EQ(join(std::vector<double>(300'000), "large "), "large 300000");
    });
    EXPECT_EQ(all.names, (std::vector<std::string>{"join", "join"}));
}

TEST(raw_call, a_proxy_forwards_streamed_answers_of_any_size) {
    for (const encoding as : {encoding::native, encoding::xdr}) {
        proxied all{{.encoding = as, .checksum = true}};
        all.server.define("texts", [](stream_writer<std::string>& out, short count, int bytes) {
            for (short i = 0; i < count; ++i)
                out(std::string(static_cast<std::size_t>(bytes), static_cast<char>('a' + i % 26)));
        });
        const auto texts =
            all.client.procedure<streamed<std::string>(short, int)>("texts").on(all.to_proxy());
        all.in_client([&] {
            std::size_t count = 0;
            for (const std::string& each : texts.window(4)(300, 3))
                EXPECT_EQ(each, std::string(3, static_cast<char>('a' + count++ % 26)));
            EXPECT_EQ(count, 300u);
            auto large = texts(2, 3'000'000);
            EXPECT_EQ(large.next(), std::string(3'000'000, 'a'));
            EXPECT_EQ(large.next(), std::string(3'000'000, 'b'));
            EXPECT_FALSE(large.next());
        });
    }
}

TEST(raw_call, a_stream_fails_with_the_code_and_text_after_its_values) {
    proxied all;
    all.server.define("rows", [](stream_writer<int>& out) {
        out(1);
        throw error(errc::not_found, "no more rows");
    });
    const auto rows = all.client.procedure<streamed<int>()>("rows").on(all.to_proxy());
    all.in_client([&] {
        auto values = rows();
        EXPECT_EQ(values.next(), 1);
        const error why = error_of([&] { (void)values.next(); });
        EXPECT_EQ(why.handler_code(), errc::not_found);
        EXPECT_NE(std::string(why.what()).find("no more rows"), std::string::npos) << why.what();
    });
}

TEST(raw_call, a_stream_that_is_not_read_stands_still_and_ends_when_its_reader_leaves) {
    proxied all;
    std::size_t sent = 0;
    bool canceled = false;
    all.server.define("endless", [&](stream_writer<int>& out) {
        try {
            for (;; ++sent)
                out(1);
        } catch (const error& why) {
            canceled = why.code() == errc::canceled;
            throw;
        }
    });
    std::optional<streamed<int>> values(
        all.client.procedure<streamed<int>()>("endless").on(all.to_proxy()).window(8)());
    all.net.run_until_idle();
    EXPECT_GE(sent, 8u);
    EXPECT_LE(sent, 8u + 2 * 64u);
    EXPECT_FALSE(canceled);
    values.reset();
    all.net.run_until_idle();
    EXPECT_TRUE(canceled);
}

TEST(raw_call, a_caller_that_does_not_read_makes_a_proxy_hold_few_large_values) {
    proxied all;
    const auto value = [](std::size_t n) {
        return std::string(3'000'000, static_cast<char>('a' + n % 26));
    };
    std::size_t sent = 0;
    all.server.define("endless", [&](stream_writer<std::string>& out) {
        for (;; ++sent)
            out(value(sent));
    });
    std::optional<streamed<std::string>> values(
        all.client.procedure<streamed<std::string>()>("endless").on(all.to_proxy()).window(1)());
    all.net.run_until_idle();
    EXPECT_GE(sent, 1u);
    EXPECT_LE(sent, 4u);
    EXPECT_GT(counters_of(all.proxy)["rpc.reader_bytes"], 0u);
    all.in_client([&] {
        for (std::size_t i = 0; i < 10; ++i)
            EXPECT_EQ(values->next(), value(i)) << i;
    });
    EXPECT_LE(sent, 14u);
    values.reset();
    all.net.run_until_idle();
    EXPECT_EQ(counters_of(all.proxy)["rpc.reader_bytes"], 0u);
}

TEST(raw_call, streams_that_a_proxy_forwards_together_take_no_more_than_max_reader_bytes) {
    const std::size_t most = 1'000'000;
    proxied all({}, {.max_reader_bytes = most});
    std::size_t sent = 0;
    all.server.define("endless", [&](stream_writer<std::string>& out) {
        for (;; ++sent)
            out(std::string(1000, 'x'));
    });
    const auto endless = all.client.procedure<streamed<std::string>()>("endless");
    std::vector<streamed<std::string>> values;
    for (int i = 0; i < 40; ++i)
        values.push_back(endless.on(all.to_proxy()).window(1)());
    all.net.run_until_idle();
    const std::size_t eager = all.proxy.core().outbox().eager_bytes(all.there);
    EXPECT_LE(counters_of(all.proxy)["rpc.reader_bytes"], most + values.size() * eager);
    EXPECT_LE(sent, 3 * values.size() + most / eager);
}

TEST(raw_call, forwards_streams_of_large_values_to_another_provider_of_its_own_engine) {
    loop_network net;
    engine proxy{net.port("proxy"), {.max_reader_bytes = 4'000'000}}, client{net.port("client")};
    const peer self = proxy.lookup(proxy.address());
    proxy.define("texts",
                 [](stream_writer<std::string>& out) {
                     for (char each = 'a'; each < 'f'; ++each)
                         out(std::string(3'000'000, each));
                 },
                 {.provider = 3});
    proxy.define_raw("texts", "stream<string>()",
                     [&](const raw_call& call) { return call.forward(self, 3); });
    auto done = client.spawn([&] {
        char next = 'a';
        for (const std::string& each : client.procedure<streamed<std::string>()>("texts").on(
                 client.lookup(proxy.address()))())
            EXPECT_EQ(each, std::string(3'000'000, next++));
        EXPECT_EQ(next, 'f');
    });
    net.run_until_idle();
    ASSERT_TRUE(done.ready());
    done.get();
}

TEST(raw_call, keeps_its_encoding_and_provider_on_the_way) {
    proxied all{{.encoding = encoding::xdr, .checksum = true}};
    all.server.define("f", [](short a, bool b) { return b ? a : short{-1}; }, {.provider = 7});
    const auto f = all.client.procedure<short(short, bool)>("f").on(all.to_proxy(), 7);
    EXPECT_EQ(all.in_client([&] { return f(12, true); }), 12);
}

TEST(raw_call, forwards_the_code_and_text_of_a_failure) {
    proxied all;
    all.server.define("row", [](int) -> int { throw error(errc::not_found, "no such row"); });
    const auto row = all.client.procedure<int(int)>("row").on(all.to_proxy());
    const auto none = all.client.procedure<int(int)>("none").on(all.to_proxy());
    all.in_client([&] {
        const error why = error_of([&] { row(1); });
        EXPECT_EQ(why.handler_code(), errc::not_found);
        EXPECT_NE(std::string(why.what()).find("no such row"), std::string::npos);
        const error unknown = error_of([&] { none(1); });
        EXPECT_EQ(unknown.code(), errc::handler_failed);
        EXPECT_EQ(unknown.handler_code(), errc::not_found);
    });
}

TEST(raw_call, posts_what_was_posted) {
    proxied all;
    int got = 0;
    all.server.define("put", [&](int n) { got += n; });
    const auto put = all.client.procedure<void(int)>("put").on(all.to_proxy());
    put.post(3);
    put.post(4);
    all.net.run_until_idle();
    EXPECT_EQ(got, 7);
}

TEST(raw_call, inherits_the_deadline_of_its_caller) {
    proxied all;
    bool canceled = false;
    all.server.define("wait", [&] {
        try {
            this_task::sleep_for(1h);
        } catch (const error& why) {
            canceled = why.code() == errc::canceled;
            throw;
        }
    });
    const auto wait = all.client.procedure<void()>("wait").on(all.to_proxy()).within(10ms);
    all.in_client([&] { EXPECT_EQ(error_of([&] { wait(); }).code(), errc::timed_out); });
    EXPECT_TRUE(canceled);
}

TEST(define_any, serves_only_names_that_nobody_defined) {
    proxied all;
    all.proxy.define("mine", [](int n) { return n + 1; });
    const peer to = all.to_proxy();
    all.in_client([&] {
        EXPECT_EQ(all.client.procedure<int(int)>("mine").on(to)(1), 2);
        const auto other = all.client.procedure<int(double)>("mine").on(to);
        EXPECT_EQ(error_of([&] { other(1); }).code(), errc::mismatch);
        const auto elsewhere = all.client.procedure<int(int)>("mine").on(to, 3);
        EXPECT_EQ(error_of([&] { elsewhere(1); }).code(), errc::not_found);
        const auto ours = all.client.procedure<int()>("amalgam.unknown").on(to);
        EXPECT_EQ(error_of([&] { ours(); }).code(), errc::not_found);
    });
    EXPECT_TRUE(all.names.empty());
}

TEST(define_any, refuses_a_procedure_that_reads_a_stream) {
    proxied all;
    all.in_client([&] {
        auto up = all.client.procedure<int(streaming<int>)>("add_up").on(all.to_proxy()).open();
        const error why = error_of([&] { up.get(); });
        EXPECT_EQ(why.code(), errc::unsupported);
        EXPECT_NE(std::string(why.what())
                      .find("\"add_up\" reads a stream, which a handler of undefined procedures "
                            "cannot: open it at the server that defines it"),
                  std::string::npos)
            << why.what();
        auto both =
            all.client.procedure<streamed<int>(streaming<int>)>("both").on(all.to_proxy()).open();
        EXPECT_EQ(error_of([&] { (void)both.next(); }).code(), errc::unsupported);
    });
    EXPECT_TRUE(all.names.empty());
}

TEST(define_any, gives_way_to_a_definition_and_comes_back) {
    proxied all;
    all.server.define("f", [] { return 1; });
    const auto f = all.client.procedure<int()>("f").on(all.to_proxy());
    EXPECT_EQ(all.in_client([&] { return f(); }), 1);
    all.proxy.define("f", [] { return 2; });
    EXPECT_EQ(all.in_client([&] { return f(); }), 2);
    EXPECT_TRUE(all.proxy.undefine("f"));
    all.in_client([&] { EXPECT_EQ(error_of([&] { f(); }).code(), errc::not_found); });
    EXPECT_EQ(all.in_client([&] { return f(); }), 1);  // Names itself again.
}

TEST(define_any, ends_with_undefine_any_and_is_defined_once) {
    proxied all;
    all.server.define("f", [] { return 1; });
    const auto f = all.client.procedure<int()>("f").on(all.to_proxy());
    EXPECT_EQ(all.in_client([&] { return f(); }), 1);
    const auto any = [](const raw_call&) { return raw_values{}; };
    EXPECT_EQ(error_of([&] { all.proxy.define_any(any); }).code(), errc::invalid);
    EXPECT_EQ(error_of([&] { all.proxy.define_any({}); }).code(), errc::invalid);
    EXPECT_TRUE(all.proxy.undefine_any());
    EXPECT_FALSE(all.proxy.undefine_any());
    all.in_client([&] { EXPECT_EQ(error_of([&] { f(); }).code(), errc::not_found); });
}

TEST(define_any, remembers_a_bounded_number_of_names) {
    loop_pair two;
    two.server.define_any([](const raw_call& call) { return raw_values{{}, call.values_as()}; });
    const peer there = two.there();
    two.in_client([&] {
        for (std::size_t i = 0; i < 3 * detail::limits::max_learned_names; ++i)
            two.client.procedure<void()>("f" + std::to_string(i)).on(there)();
        const auto first = two.client.procedure<void()>("f0").on(there);
        const error why = error_of([&] { first(); });
        EXPECT_EQ(why.code(), errc::not_found);  // Forgotten.
        EXPECT_NE(std::string(why.what()).find("call again"), std::string::npos) << why.what();
        first();
    });
}

TEST(define_any, a_peer_with_many_names_does_not_push_out_those_of_others) {
    loop_pair two;
    two.server.define_any([](const raw_call& call) { return raw_values{{}, call.values_as()}; });
    engine other{two.net.port("other")};
    const peer from_other = other.lookup(two.server.address());
    const auto shared = other.procedure<void()>("shared").on(from_other);
    const auto own = other.procedure<void()>("own").on(from_other);
    const auto call_both = [&] {
        auto done = other.spawn([&] {
            shared();
            own();
        });
        two.net.run_until_idle();
        done.get();
    };
    const peer there = two.there();
    two.in_client([&] { two.client.procedure<void()>("shared").on(there)(); });
    for (int round = 0; round < 3; ++round) {
        call_both();
        two.in_client([&] {
            for (std::size_t i = 0; i < 2 * detail::limits::max_learned_names; ++i)
                two.client
                    .procedure<void()>(std::to_string(round * 10000) + "x" + std::to_string(i))
                    .on(there)();
        });
    }
    call_both();
}

TEST(define_any, peers_that_come_and_go_share_one_part_of_the_names) {
    loop_pair two;
    two.server.define_any([](const raw_call& call) { return raw_values{{}, call.values_as()}; });
    const peer there = two.there();
    const auto mine = two.client.procedure<void()>("mine").on(there);
    two.in_client([&] { mine(); });
    const std::size_t names = detail::limits::max_learned_names / 4;
    for (std::size_t each = 0; each < 8; ++each) {
        engine brief{two.net.port("brief" + std::to_string(each))};
        const peer from_it = brief.lookup(two.server.address());
        auto done = brief.spawn([&] {
            for (std::size_t i = 0; i < names; ++i)
                brief.procedure<void()>(std::to_string(each * names + i)).on(from_it)();
        });
        two.net.run_until_idle();
        done.get();
    }
    two.in_client([&] { mine(); });
}

TEST(define_raw, gets_the_arguments_undecoded_and_answers_encoded) {
    loop_pair two;
    two.server.define_raw("sum", "i32(i32,i32)", [](const raw_call& call) {
        EXPECT_EQ(call.signature(), "i32(i32,i32)");
        archive_reader from(call.arguments(), call.values_as());
        int a = 0, b = 0;
        from(a, b);
        return raw_values::of(a + b);
    });
    const peer there = two.there();
    two.in_client([&] {
        EXPECT_EQ(two.client.procedure<int(int, int)>("sum").on(there)(2, 3), 5);
        const raw_values sum =
            two.client.call_raw(there, "sum", "i32(i32,i32)", raw_values::of(4, 5));
        EXPECT_EQ(sum.bytes, raw_values::of(9).bytes);
    });
}

TEST(define_raw, sends_values_of_a_stream_encoded) {
    loop_pair two;
    two.server.define_raw("count", "stream<i32>(i32)", [](const raw_call& call) {
        EXPECT_TRUE(call.is_streamed());
        archive_reader from(call.arguments(), call.values_as());
        int count = 0;
        from(count);
        for (int i = 0; i < count; ++i)
            call.send(raw_values::of(i));
        EXPECT_EQ(error_of([&] { call.send({{}, encoding::xdr}); }).code(), errc::invalid);
        return raw_values{};
    });
    two.server.define_raw("one", "i32()", [](const raw_call& call) {
        EXPECT_FALSE(call.is_streamed());
        EXPECT_STREQ(error_of([&] { call.send(raw_values::of(1)); }).what(),
                     "\"one\" does not return a stream: return its result");
        return raw_values::of(2);
    });
    const peer there = two.there();
    two.in_client([&] {
        int next = 0;
        for (const int each : two.client.procedure<streamed<int>(int)>("count").on(there)(5))
            EXPECT_EQ(each, next++);
        EXPECT_EQ(next, 5);
        EXPECT_EQ(two.client.procedure<int()>("one").on(there)(), 2);
    });
}

TEST(define_raw, an_answer_that_is_not_one_fails_its_call_only) {
    loop_pair two;
    two.server.define_raw("f", "string()", [](const raw_call& call) {
        return raw_values{std::vector<std::byte>(3), call.values_as()};
    });
    two.server.define_raw("g", "string()", [](const raw_call&) {
        return raw_values{{}, encoding::xdr};
    });
    const peer there = two.there();
    two.in_client([&] {
        const auto f = two.client.procedure<std::string()>("f").on(there);
        EXPECT_EQ(error_of([&] { f(); }).code(), errc::mismatch);
        const auto g = two.client.procedure<std::string()>("g").on(there);
        EXPECT_EQ(error_of([&] { g(); }).handler_code(), errc::invalid);
    });
}

TEST(define_raw, a_signature_that_is_none_is_refused) {
    loop_pair two;
    const auto define = [&](std::string signature) {
        return error_of([&] {
            two.server.define_raw("f", std::move(signature),
                                  [](const raw_call&) { return raw_values{}; });
        });
    };
    for (const char* none : {"", "zzz", "()", "(i32)", "i32(", "i32)", "i32()x"})
        EXPECT_EQ(define(none).code(), errc::invalid) << none;
    const error why = define("i32(stream<i32>)");
    EXPECT_EQ(why.code(), errc::unsupported);
    EXPECT_STREQ(why.what(), "\"f\" reads a stream, which has no raw form: use its type");
}

TEST(call_raw, an_encoding_that_is_none_is_refused) {
    loop_pair two;
    raw_values values = raw_values::of(1, 2);
    values.as = static_cast<encoding>(77);
    const peer there = two.there();
    two.in_client([&] {
        const error why =
            error_of([&] { two.client.call_raw(there, "sum", "i32(i32,i32)", values); });
        EXPECT_EQ(why.code(), errc::invalid);
        EXPECT_NE(std::string(why.what()).find("raw_values::as is 77"), std::string::npos);
    });
}

TEST(call_raw, arguments_that_do_not_fit_are_refused_by_the_handler) {
    loop_pair two;
    two.server.define("f", [](const std::string& text) { return text.size(); });
    const peer there = two.there();
    two.in_client([&] {
        const auto call = [&](std::string signature, raw_values arguments) {
            return error_of(
                [&] { two.client.call_raw(there, "f", std::move(signature), arguments); });
        };
        EXPECT_EQ(call("u64(string)", {}).code(), errc::mismatch);
        EXPECT_EQ(call("u64(string)", {std::vector<std::byte>(9, std::byte{255})}).code(),
                  errc::mismatch);
        EXPECT_EQ(call("u64", {}).code(), errc::invalid);
        EXPECT_EQ(call("", {}).code(), errc::invalid);
        const error why = call("stream<i32>()", {});
        EXPECT_EQ(why.code(), errc::unsupported);
        EXPECT_STREQ(why.what(),
                     "\"f\" returns a stream, which call_raw() cannot read: use its type, or "
                     "forward it in a handler by raw_call::forward()");
        EXPECT_EQ(call("i32(stream<i32>)", {}).code(), errc::unsupported);
    });
}

}  // namespace
}  // namespace amalgam
