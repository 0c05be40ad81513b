#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/fabric/transport.hpp>

#include "fabric/port/port_testing.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

class named_transport final : public transport {
public:
    named_transport(std::string name, std::string summary)
        : name_(std::move(name)), summary_(std::move(summary)) {}
    std::string_view name() const noexcept override { return name_; }
    transport_info describe() const override {
        return {.name = name_, .usable = true, .summary = summary_, .example = name_ + "://x"};
    }
    result<std::unique_ptr<port>> open(const uri&, const port_options&) const override {
        return {errc::unreachable, summary_};
    }

private:
    std::string name_;
    std::string summary_;
};

TEST(transport_registry_test, native_holds_loop_shm_and_tcp) {
    const transport_registry all = transport_registry::native();
    for (const char* name : {"loop", "shm", "tcp"}) {
        const transport* one = all.find(name);
        ASSERT_NE(one, nullptr) << name;
        EXPECT_EQ(one->describe().name, name);
        EXPECT_NE(one->describe().example, "");
    }
    EXPECT_EQ(all.find("ucx"), nullptr);
    EXPECT_EQ(all.describe().size(), 3u);
}

TEST(transport_registry_test, the_scheme_chooses_the_transport) {
    transport_registry some;
    some.add(std::make_unique<named_transport>("near", "near was asked"));
    some.add(std::make_unique<named_transport>("far", "far was asked"));
    EXPECT_EQ(some.open("far://x").sentence(), "far was asked");
    EXPECT_EQ(some.open("near://x").sentence(), "near was asked");
}

TEST(transport_registry_test, a_later_transport_of_the_same_name_replaces_the_earlier) {
    transport_registry some;
    some.add(std::make_unique<named_transport>("far", "old"));
    some.add(std::make_unique<named_transport>("far", "new"));
    EXPECT_EQ(some.describe().size(), 1u);
    EXPECT_EQ(some.open("far://x").sentence(), "new");
}

TEST(transport_registry_test, an_unknown_scheme_gets_the_names_there_are_and_an_example) {
    transport_registry some;
    some.add(std::make_unique<named_transport>("near", ""));
    some.add(std::make_unique<named_transport>("far", ""));
    const auto opened = some.open("wide://x");
    EXPECT_EQ(opened.code().code, errc::not_found);
    EXPECT_EQ(opened.sentence(),
              "uri \"wide://x\": there is no transport \"wide\"; expected one of: near, far; "
              "example: near://x");
    EXPECT_EQ(transport_registry().open("wide://x").code().code, errc::not_found);
}

TEST(transport_registry_test, a_wrong_uri_gets_the_parsers_sentence) {
    const auto opened = transport_registry::native().open("tcp://h:99999");
    EXPECT_EQ(opened.code().code, errc::invalid);
    EXPECT_NE(opened.sentence().find("example"), std::string::npos);
}

TEST(transport_registry_test, a_limit_of_no_time_is_refused_and_one_for_ever_is_long) {
    const transport_registry all = transport_registry::native();
    for (const char* uri : {"tcp://127.0.0.1:0", "shm://", "loop://limits"}) {
        for (const auto none : {0ms, -1ms}) {
            const auto refused = all.open(uri, {.silence_limit = none});
            EXPECT_EQ(refused.code().code, errc::invalid) << uri;
            EXPECT_NE(refused.sentence().find("expected a positive duration"), std::string::npos);
        }
        constexpr auto for_ever = std::chrono::milliseconds::max();
        EXPECT_TRUE(all.open(uri, {.silence_limit = for_ever, .frame_limit = for_ever})) << uri;
    }
}

TEST(transport_registry_test, a_frame_limit_below_nothing_and_a_null_transport_are_refused) {
    transport_registry all = transport_registry::native();
    for (const char* uri : {"tcp://127.0.0.1:0", "shm://", "loop://frames"}) {
        const auto refused = all.open(uri, {.frame_limit = -1ms});
        EXPECT_EQ(refused.code().code, errc::invalid) << uri;
        EXPECT_EQ(refused.sentence().find("port_options::frame_limit is -1 ms"), 0u);
        EXPECT_TRUE(all.open(uri, {.frame_limit = 0ms})) << uri;
    }
    EXPECT_THROW(all.add(nullptr), error);
    EXPECT_NE(all.find("tcp"), nullptr);
}

TEST(transport_registry_test, no_room_for_strangers_is_refused_on_every_transport) {
    const transport_registry all = transport_registry::native();
    for (const char* uri : {"tcp://127.0.0.1:0", "shm://", "loop://strangers"}) {
        const auto refused = all.open(uri, {.max_strangers = 0});
        EXPECT_EQ(refused.code().code, errc::invalid) << uri;
        EXPECT_NE(refused.sentence().find("max_strangers is 0"), std::string::npos);
        EXPECT_TRUE(all.open(uri, {.max_strangers = SIZE_MAX})) << uri;
    }
}

TEST(transport_registry_test, native_ports_copy_messages_of_up_to_8_KiB) {
    const transport_registry all = transport_registry::native();
    struct counting final : message_sink {
        void on_message(message& got) noexcept override { bytes += got.bytes().size(); }
        std::size_t bytes = 0;
    };
    const std::vector<std::byte> text(8192);
    const auto piece = [&](std::size_t length) { return const_bytes(text).first(length); };
    for (const char* scheme : {"tcp://127.0.0.1:0", "shm://", "loop://"}) {
        const std::string where = scheme;
        const bool named = where == "loop://";
        const auto a = all.open(named ? where + "a" : where).value();
        const auto b = all.open(named ? where + "b" : where).value();
        counting sink;
        b->set_sink(&sink);
        const peer_id to = a->lookup(b->address()).value();
        testing_support::recorded first, second;
        const const_bytes one = piece(1), most = piece(8192);
        (void)a->post_send(to, 1, gather(&one, 1), first);
        while (sink.bytes < 1 || a->open_operations() != 0) {
            a->progress();
            b->progress();
        }
        EXPECT_EQ(a->post_send(to, 1, gather(&most, 1), second), posted::done) << where;
        while (sink.bytes < 8193) {
            a->progress();
            b->progress();
        }
        b->set_sink(nullptr);
    }
}

TEST(transport_registry_test, a_loop_name_is_taken_once_per_registry) {
    const transport_registry one = transport_registry::native();
    const transport_registry other = transport_registry::native();
    auto first = one.open("loop://same");
    ASSERT_TRUE(first.ok());
    const auto again = one.open("loop://same");
    EXPECT_EQ(again.code().code, errc::in_use);
    EXPECT_NE(again.sentence().find("example: loop://same-2"), std::string::npos);
    EXPECT_TRUE(other.open("loop://same").ok());
    first.value().reset();
    EXPECT_TRUE(one.open("loop://same").ok());
}

}  // namespace
}  // namespace amalgam
