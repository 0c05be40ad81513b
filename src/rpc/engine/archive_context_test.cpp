#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/provider.hpp>
#include <amalgam/rpc/raw_call.hpp>

#include "rpc/loop_pair.hpp"

namespace amalgam {
namespace {

struct names {
    std::vector<std::string> all;
};

/// Travels as a number, by a table that both ends have.
struct word {
    std::string text;

    template <typename Archive>
    void serialize(Archive& a) {
        const names* const known = a.template context<names>();
        std::uint32_t number = 0;
        if constexpr (!Archive::loading) {
            while (known != nullptr && known->all.at(number) != text)
                ++number;
        }
        a(number);
        if constexpr (Archive::loading) {
            text = known == nullptr ? "nobody knows" : known->all.at(number);
        }
    }
};

TEST(archive_context, serializers_see_the_object_of_their_engine) {
    loop_network net;
    const auto table = std::make_shared<names>(names{{"zero", "one", "two"}});
    engine server{net.port("server"), {.context = table}};
    engine client{net.port("client"), {.context = table}};
    engine other{net.port("other"), {.context = std::make_shared<int>(1)}};
    const auto next = [](const word& from) { return word{from.text == "one" ? "two" : "zero"}; };
    server.define("next", next);
    other.define("next", [](const word& from) { return from.text; });
    auto done = client.spawn([&] {
        EXPECT_EQ(client.procedure<word(word)>("next").on(server.address())({"one"}).text, "two");
        EXPECT_EQ(client.procedure<std::string(word)>("next").on(other.address())({"one"}),
                  "nobody knows");
    });
    net.run_until_idle();
    done.get();
    const archive_context fixed(std::shared_ptr<const names>{table});
    EXPECT_EQ(fixed.get<const names>(), table.get());
    EXPECT_EQ(fixed.get<names>(), nullptr);
    EXPECT_EQ(archive_context(table).get<const names>(), table.get());
    body alone;
    archive_writer to(alone);
    EXPECT_EQ(to.context<names>(), nullptr);
}

std::shared_ptr<names> table_of(std::vector<std::string> words) {
    return std::make_shared<names>(names{std::move(words)});
}

/// Two engines with one table. A word that passes from it to the other one, or back, is another.
struct two_tables {
    std::shared_ptr<names> engines = table_of({"zero", "a", "b"});
    std::shared_ptr<names> other = table_of({"zero", "b", "a"});
    loop_network net;
    engine server{net.port("server"), {.context = engines}};
    engine client{net.port("client"), {.context = engines}};

    template <typename Work>
    void in_client(Work work) {
        auto done = client.spawn(std::move(work));
        net.run_until_idle();
        ASSERT_TRUE(done.ready());
        done.get();
    }
    peer there() { return client.lookup(server.address()); }
};

std::string text_of_word(const word& from) {
    return from.text;
}

TEST(archive_context, handlers_see_that_of_their_procedure) {
    two_tables all;
    std::string posted;
    const auto same = [](const word& from) { return word{from.text}; };
    const auto late = [](responder<word> answer, const word&) { answer(word{"a"}); };
    const auto many = [](stream_writer<word>& out, const word& from) { out(from), out({"a"}); };
    all.server.define("ult", &text_of_word, {.context = all.other});
    all.server.define("inline", &text_of_word, {.run = handler::inline_, .context = all.other});
    all.server.define("post", [&](const word& from) { posted = from.text; },
                      {.context = all.other});
    all.server.define("same", same, {.context = all.other});
    all.server.define("late", late, {.context = all.other});
    all.server.define("many", many, {.context = all.other});
    all.server.define("engine's", &text_of_word);
    all.in_client([&] {
        const auto call = [&](const char* name) {
            return all.client.procedure<std::string(word)>(name).on(all.there())({"a"});
        };
        EXPECT_EQ(call("ult"), "b");
        EXPECT_EQ(call("inline"), "b");
        EXPECT_EQ(call("engine's"), "a");
        all.client.procedure<void(word)>("post").on(all.there()).post({"a"});
        EXPECT_EQ(all.client.procedure<word(word)>("same").on(all.there())({"a"}).text, "a");
        EXPECT_EQ(all.client.procedure<word(word)>("late").on(all.there())({"b"}).text, "b");
        auto values = all.client.procedure<streamed<word>(word)>("many").on(all.there())({"a"});
        EXPECT_EQ(values.next()->text, "a");
        EXPECT_EQ(values.next()->text, "b");
    });
    EXPECT_EQ(posted, "b");
}

TEST(archive_context, callers_see_that_of_their_procedure) {
    two_tables all;
    std::string posted, told;
    all.server.define("read", &text_of_word);
    all.server.define("post", [&](const word& from) { posted = from.text; });
    all.server.define("write", [](int) { return word{"a"}; });
    all.server.define("many", [](stream_writer<word>& out) { out({"a"}), out({"b"}); });
    all.in_client([&] {
        const calling_options how{.context = all.other};
        const auto write = all.client.procedure<word(int)>("write", how).on(all.there());
        EXPECT_EQ(all.client.procedure<std::string(word)>("read", how).on(all.there())({"a"}), "b");
        all.client.procedure<void(word)>("post", how).on(all.there()).post({"a"});
        EXPECT_EQ(write(1).text, "b");
        EXPECT_EQ(write.try_call(1)->text, "b");
        write.call_then([&](result<word> got) { told = got->text; }, 1);
        auto values = all.client.procedure<streamed<word>()>("many", how).on(all.there())();
        EXPECT_EQ(values.next()->text, "b");
        EXPECT_EQ(values.next()->text, "a");
        EXPECT_EQ(all.client.procedure<word(int)>("write").on(all.there())(1).text, "a");
    });
    EXPECT_EQ(posted, "b");
    EXPECT_EQ(told, "b");
}

TEST(archive_context, that_of_a_call_is_seen_in_place_of_its_procedures) {
    two_tables all;
    all.server.define("same", [](const word& from) { return word{from.text}; });
    all.in_client([&] {
        const auto same =
            all.client.procedure<word(word)>("same", {.context = all.other}).on(all.there());
        const auto with_third = same.with_context(table_of({"third", "x", "y"}));
        EXPECT_EQ(with_third({"x"}).text, "x");
        EXPECT_EQ(same.try_call({"x"}).code(), errc::invalid) << "the copy has changed it";
        EXPECT_EQ(with_third.with_context(std::make_shared<int>(1))({"x"}).text, "nobody knows");
    });
}

TEST(archive_context, lives_until_the_last_call_that_sees_it_is_over) {
    two_tables all;
    std::optional<responder<word>> waits;
    all.server.define("wait", [&](responder<word> mine) { waits.emplace(std::move(mine)); });
    auto brief = table_of({"zero", "brief"});
    const std::weak_ptr<names> seen = brief;
    auto later = all.client.procedure<word()>("wait")
                     .on(all.there())
                     .with_context(std::exchange(brief, nullptr))
                     .start();
    all.net.run_until_idle();
    EXPECT_FALSE(seen.expired());
    auto answered = all.server.spawn([&] { (*waits)(word{"a"}); });
    all.net.run_until_idle();
    EXPECT_EQ(later.get().text, "brief");
    later = {};
    EXPECT_TRUE(seen.expired());
}

TEST(archive_context, values_sent_to_a_handler_see_those_of_both_ends) {
    two_tables all;
    const auto all_of = [](stream_reader<word>& in) {
        std::string text;
        for (const word& each : in)
            text += each.text;
        return text;
    };
    const auto back = [](stream_reader<word>& in, stream_writer<word>& out) {
        for (const word& each : in)
            out(each);
    };
    all.server.define("engine's", all_of);
    all.server.define("other", all_of, {.context = all.other});
    all.server.define("back", back, {.context = all.other});
    all.in_client([&] {
        const auto sent = [&](const char* name, calling_options how) {
            auto up = all.client.procedure<std::string(streaming<word>)>(name, how)
                          .on(all.there())
                          .open();
            up.send({"a"});
            up.send({"b"});
            return up.get();
        };
        EXPECT_EQ(sent("engine's", {}), "ab");
        EXPECT_EQ(sent("engine's", {.context = all.other}), "ba");
        EXPECT_EQ(sent("other", {}), "ba");
        EXPECT_EQ(sent("other", {.context = all.other}), "ab");
        auto both = all.client.procedure<streamed<word>(streaming<word>)>("back")
                        .on(all.there())
                        .with_context(all.other)
                        .open();
        both.send({"a"});
        EXPECT_EQ(both.next()->text, "a");
        both.finish();
        EXPECT_FALSE(both.next());
    });
}

struct echo {
    word same(const word& from) { return from; }
    std::string text(const word& from) const { return from.text; }
};

TEST(archive_context, methods_of_a_provider_see_that_of_the_provider) {
    two_tables all;
    provider<echo> mine(all.server, "echo", std::make_shared<echo>(),
                        {.provider = 3, .context = all.other});
    mine.define("same", &echo::same);
    mine.define("text", &echo::text);
    all.in_client([&] {
        const peer there = all.there();
        EXPECT_EQ(all.client.procedure<std::string(word)>("text").on(there, 3)({"a"}), "b");
        EXPECT_EQ(all.client.procedure<word(word)>("same").on(there, 3)({"a"}).text, "a");
    });
}

TEST(archive_context, raw_values_which_belong_to_no_call_are_written_without_one) {
    two_tables all;
    all.in_client(
        [] { EXPECT_EQ(raw_values::of(word{"b"}).bytes, raw_values::of(std::uint32_t{0}).bytes); });
}

}  // namespace
}  // namespace amalgam
