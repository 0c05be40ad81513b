#include <complex>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/crc32c.hpp>
#include <amalgam/rpc/engine.hpp>

#include "rpc/codec/sample_values.hpp"
#include "rpc/loop_pair.hpp"
#include "rpc/memory/rendezvous.hpp"
#include "rpc/wire/wire.hpp"

// Engines with different encodings, and messages with checksums.
namespace amalgam {
namespace {

using samples::self_loading_style;

/// A client with given options, and a server with the defaults.
struct encoding_pair {
    explicit encoding_pair(engine_options how) : client(net.port("client"), std::move(how)) {}

    loop_network net;
    engine server{net.port("server")};
    engine client;

    template <typename Work>
    auto in_client(Work work) {
        auto done = client.spawn(std::move(work));
        net.run_until_idle();
        EXPECT_TRUE(done.ready());
        return done.get();
    }
};

/// A bare port that stores received messages.
struct bare_port final : message_sink {
    explicit bare_port(loop_network& net) : line(net.port("bare")) { line->set_sink(this); }

    void send(std::uint64_t as, std::vector<std::byte> what) {
        struct sent final : completion {
            sent()
                : completion([](completion& c, status, std::size_t) noexcept {
                      delete static_cast<sent*>(&c);
                  }) {}
        };
        auto* const done = new sent;
        const const_bytes piece(what);
        if (line->post_send(there, as, gather(&piece, 1), *done) != posted::pending) delete done;
    }
    void on_message(message& arrived) noexcept override {
        there = arrived.from();
        tag = arrived.tag();
        got.assign(arrived.bytes().begin(), arrived.bytes().end());
    }
    detail::parsed_message parsed() const {
        detail::parsed_message into;
        EXPECT_EQ(detail::parse(got, into), nullptr);
        return into;
    }

    std::unique_ptr<port> line;
    peer_id there;
    std::uint64_t tag = 0;
    std::vector<std::byte> got;
};

std::vector<std::byte> with_checksum(std::vector<std::byte> message) {
    const const_bytes piece(message);
    const auto sum = detail::checksum_of({&piece, 1});
    message.insert(message.end(), sum.begin(), sum.end());
    return message;
}

TEST(encoding, a_call_in_xdr_is_understood_and_answered_in_xdr) {
    for (const bool checksum : {false, true}) {
        loop_network net;
        bare_port bare(net);
        engine client(net.port("client"), {.encoding = encoding::xdr, .checksum = checksum});
        auto call = client.procedure<int(std::uint8_t)>("next").on(bare.line->address()).start(7);
        net.run_until_idle();
        const detail::parsed_message asked = bare.parsed();
        EXPECT_TRUE(asked.has(detail::wire_flag::xdr));
        EXPECT_EQ(asked.has(detail::wire_flag::checked), checksum);
        EXPECT_EQ(std::string(detail::as_text(asked.body)), std::string("\0\0\0\7", 4));
        std::vector<std::byte> reply(detail::reply_bytes);
        detail::write_reply(reply.data(), {},
                            asked.flags & (detail::wire_flag::xdr | detail::wire_flag::checked));
        for (int each : {0, 0, 0, 8})
            reply.push_back(static_cast<std::byte>(each));
        bare.send(bare.tag, checksum ? with_checksum(reply) : reply);
        net.run_until_idle();
        EXPECT_EQ(call.get(), 8);
    }
}

TEST(encoding, every_kind_of_value_travels_in_every_call_form) {
    for (const encoding as : {encoding::native, encoding::xdr}) {
        for (const bool checksum : {false, true}) {
            encoding_pair pair({.encoding = as, .checksum = checksum});
            using strings = std::vector<std::string>;
            strings posted;
            pair.server.define("join", [](std::string_view first, std::span<const double> numbers,
                                          std::unique_ptr<int> count, const strings& words) {
                strings all{std::string(first)};
                for (double each : numbers)
                    all.push_back(std::to_string(each));
                if (count) all.push_back(std::to_string(*count));
                all.insert(all.end(), words.begin(), words.end());
                return all;
            });
            pair.server.define("keep", [&](std::string_view word) { posted.emplace_back(word); });
            pair.server.define("give", [](self_loading_style x, std::uint8_t) {
                return std::make_unique<self_loading_style>(std::move(x));
            });
            pair.in_client([&] {
                const peer there = pair.client.lookup(pair.server.address());
                auto join = pair.client
                                .procedure<strings(std::string, std::vector<double>,
                                                   std::unique_ptr<int>, strings)>("join")
                                .on(there);
                const strings expected{"a", "2.500000", "7", "w"};
                EXPECT_EQ(join("a", {2.5}, std::make_unique<int>(7), {"w"}), expected);
                EXPECT_EQ(join.try_call("a", {2.5}, std::make_unique<int>(7), {"w"}).value(),
                          expected);
                EXPECT_EQ(join.start("a", {2.5}, std::make_unique<int>(7), {"w"}).get(), expected);
                const strings many(1000, "word");
                EXPECT_EQ(join("", {}, nullptr, many).size(), 1001u);
                pair.client.procedure<void(std::string)>("keep").on(there).post("kept");
                auto give = pair.client
                                .procedure<std::unique_ptr<self_loading_style>(
                                    self_loading_style, std::uint8_t)>("give")
                                .on(there);
                EXPECT_EQ(*give(self_loading_style("x"), 1), self_loading_style("x"));
                EXPECT_EQ(*give.start(self_loading_style("y"), 2).get(), self_loading_style("y"));
            });
            pair.net.run_until_idle();
            EXPECT_EQ(posted, strings{"kept"});
            EXPECT_EQ(counters_of(pair.server)["rpc.corrupt"], 0u);
            EXPECT_EQ(counters_of(pair.client)["rpc.malformed"], 0u);
        }
    }
}

TEST(encoding, an_engine_that_calls_itself_does_so_in_its_own_encoding) {
    encoding_pair pair({.encoding = encoding::xdr, .checksum = true});
    pair.client.define("half", [](const std::complex<double>& x) { return x / 2.0; },
                       {.run = handler::inline_});
    const auto half = pair.in_client([&] {
        return pair.client.procedure<std::complex<double>(std::complex<double>)>("half").on(
            pair.client.address())({1, 3});
    });
    EXPECT_EQ(half, std::complex<double>(0.5, 1.5));
}

TEST(checksum, a_refusal_of_a_checked_call_is_checked_too) {
    encoding_pair pair({.checksum = true});
    const error why = pair.in_client([&] {
        return error_of(
            [&] { pair.client.procedure<void()>("nobody").on(pair.server.address())(); });
    });
    EXPECT_EQ(why.code(), errc::not_found);
}

TEST(checksum, a_damaged_request_runs_nothing_and_its_caller_is_told) {
    loop_network net;
    engine server{net.port("server")};
    int runs = 0;
    server.define("run", [&](int) { ++runs; });
    bare_port bare(net);
    bare.there = bare.line->lookup(server.address()).value();
    std::vector<std::byte> request(detail::request_bytes + 4);
    detail::write_request(request.data(), {.flags = detail::wire_flag::checked,
                                           .procedure = detail::procedure_id("run", "void(i32)")});
    request = with_checksum(std::move(request));
    for (std::size_t i = 4; i < request.size(); ++i) {
        std::vector<std::byte> damaged = request;
        damaged[i] ^= std::byte{0x10};
        bare.send(9, damaged);
        net.run_until_idle();
        EXPECT_EQ(bare.parsed().what, errc::corrupt) << i;
        damaged[0] = static_cast<std::byte>(0x20 | static_cast<int>(detail::message_kind::one_way));
        bare.send(0, damaged);
        net.run_until_idle();
    }
    EXPECT_EQ(runs, 0);
    EXPECT_EQ(counters_of(server)["rpc.corrupt"], 2 * (request.size() - 4));
    bare.send(9, request);
    net.run_until_idle();
    EXPECT_TRUE(bare.parsed().what.ok());
    EXPECT_EQ(runs, 1);
}

TEST(checksum, a_damaged_reply_ends_the_call_as_corrupt) {
    // The last damages the flag, so the checksum is missing.
    for (const std::size_t damage :
         {std::size_t{8}, std::size_t{11}, std::size_t{13}, std::size_t{2}}) {
        loop_network net;
        bare_port bare(net);
        engine client(net.port("client"), {.checksum = true});
        auto call = client.procedure<int()>("f").on(bare.line->address()).start();
        net.run_until_idle();
        std::vector<std::byte> reply(detail::reply_bytes + 4);
        detail::write_reply(reply.data(), {}, detail::wire_flag::checked);
        reply = with_checksum(reply);
        reply[damage] ^= std::byte{4};
        bare.send(bare.tag, reply);
        net.run_until_idle();
        const error why = error_of([&] { call.get(); });
        EXPECT_EQ(why.code(), errc::corrupt) << damage;
        EXPECT_NE(std::string_view(why.what()).find("checksum"), std::string_view::npos);
    }
}

TEST(checksum, an_idempotent_call_whose_answer_was_damaged_is_made_again) {
    loop_network net;
    bare_port bare(net);
    engine client(net.port("client"), {.checksum = true});
    auto call = client.procedure<int()>("f", {.idempotent = true})
                    .on(bare.line->address())
                    .retrying(2)
                    .start();
    net.run_until_idle();
    for (const std::byte damage : {std::byte{1}, std::byte{0}}) {
        std::vector<std::byte> reply(detail::reply_bytes);
        detail::write_reply(reply.data(), {}, detail::wire_flag::checked);
        for (int each : {5, 0, 0, 0})
            reply.push_back(static_cast<std::byte>(each));
        reply = with_checksum(reply);
        reply[8] ^= damage;
        bare.send(bare.tag, reply);
        net.run_until_idle();
    }
    EXPECT_EQ(call.get(), 5);
    EXPECT_EQ(counters_of(client)["rpc.corrupt"], 1u);
}

/// An encoded text in memory of a bare port.
struct shown_text {
    explicit shown_text(bare_port& where, const std::string& text) {
        archive_writer writer(values);
        writer(text);
        memory.assign(values.bytes().begin(), values.bytes().end());
        shown = where.line->open_region(mutable_bytes(memory), access::read).value();
    }
    std::vector<std::byte> behind(std::vector<std::byte> header) const {
        std::vector<std::byte> extras;
        detail::add_rendezvous(extras, shown.key(), values.bytes(), true);
        header.insert(header.end(), extras.begin(), extras.end());
        return with_checksum(std::move(header));
    }

    body values;
    std::vector<std::byte> memory;
    region shown;
};

constexpr std::uint8_t checked_rendezvous = detail::wire_flag::checked | detail::wire_flag::extras;
const std::string large(100'000, 'l');

TEST(checksum, arguments_that_were_damaged_when_they_were_fetched_run_nothing) {
    loop_network net;
    engine server{net.port("server")};
    std::size_t seen = 0;
    server.define("keep", [&](std::string_view text) { seen += text.size(); });
    bare_port bare(net);
    bare.there = bare.line->lookup(server.address()).value();
    shown_text text(bare, large);
    const auto call = [&](detail::message_kind kind) {
        std::vector<std::byte> header(detail::request_bytes);
        detail::write_request(header.data(),
                              {.kind = kind,
                               .flags = checked_rendezvous,
                               .procedure = detail::procedure_id("keep", "void(string)")});
        bare.send(kind == detail::message_kind::request ? 9 : 0, text.behind(header));
        net.run_until_idle();
    };
    call(detail::message_kind::request);
    EXPECT_TRUE(bare.parsed().what.ok());
    EXPECT_EQ(seen, large.size());
    text.memory[50'000] ^= std::byte{1};
    call(detail::message_kind::request);
    EXPECT_EQ(bare.parsed().what, errc::corrupt);
    EXPECT_NE(detail::as_text(bare.parsed().body).find("checksum"), std::string_view::npos);
    call(detail::message_kind::one_way);
    EXPECT_EQ(seen, large.size());
    EXPECT_EQ(counters_of(server)["rpc.corrupt"], 2u);
}

TEST(checksum, a_result_that_was_damaged_when_it_was_fetched_ends_the_call_as_corrupt) {
    for (const std::byte damage : {std::byte{0}, std::byte{1}}) {
        loop_network net;
        bare_port bare(net);
        engine client(net.port("client"), {.checksum = true});
        auto call = client.procedure<std::string()>("f").on(bare.line->address()).start();
        net.run_until_idle();
        shown_text text(bare, large);
        text.memory[50'000] ^= damage;
        std::vector<std::byte> header(detail::reply_bytes);
        detail::write_reply(header.data(), {}, checked_rendezvous);
        bare.send(bare.tag, text.behind(header));
        net.run_until_idle();
        if (damage == std::byte{0}) {
            EXPECT_EQ(call.get(), large);
        } else {
            const error why = error_of([&] { call.get(); });
            EXPECT_EQ(why.code(), errc::corrupt);
            EXPECT_NE(std::string_view(why.what()).find("checksum"), std::string_view::npos);
        }
        EXPECT_EQ(counters_of(client)["rpc.corrupt"], std::to_integer<unsigned>(damage));
    }
}

TEST(checksum, of_values_elsewhere_goes_with_every_checked_message) {
    loop_network net({.max_message_bytes = 90'000});
    bare_port bare(net);
    const auto sum_of = [&] { return detail::rendezvous_in(bare.parsed().extras)->checksum; };
    body values;
    archive_writer writer(values);
    writer(large);
    const std::optional<std::uint32_t> expected = crc32c(values.bytes());

    engine checks(net.port("checks"), {.checksum = true});
    auto f = checks.procedure<void(std::string)>("f").on(bare.line->address());
    future<void> call = f.start(large);
    net.run_until_idle();
    EXPECT_EQ(sum_of(), expected);
    f.post(large);
    net.run_until_idle();
    EXPECT_EQ(sum_of(), expected);
    engine plain(net.port("plain"));
    plain.procedure<void(std::string)>("f").on(bare.line->address()).post(large);
    net.run_until_idle();
    EXPECT_EQ(sum_of(), std::nullopt);

    plain.define("give", [] { return large; });
    bare.there = bare.line->lookup(plain.address()).value();
    for (const std::uint8_t flags : {std::uint8_t{0}, detail::wire_flag::checked}) {
        std::vector<std::byte> request(detail::request_bytes);
        detail::write_request(
            request.data(),
            {.flags = flags, .procedure = detail::procedure_id("give", "string()")});
        bare.send(7, flags == 0 ? request : with_checksum(request));
        net.run_until_idle();
        EXPECT_EQ(sum_of(), flags == 0 ? std::nullopt : expected);
    }
}

TEST(checksum, values_of_any_size_travel_with_one) {
    encoding_pair pair({.checksum = true});
    pair.server.define("echo", [](std::string text) { return text; });
    pair.in_client([&] {
        auto echo =
            pair.client.procedure<std::string(std::string)>("echo").on(pair.server.address());
        EXPECT_EQ(echo(large), large);
    });
    EXPECT_EQ(counters_of(pair.server)["rpc.corrupt"], 0u);
}

}  // namespace
}  // namespace amalgam
