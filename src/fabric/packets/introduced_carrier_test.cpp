#include <algorithm>
#include <utility>

#include "fabric/packets/scripted_carrier.hpp"

namespace amalgam::detail {
namespace {

TEST_F(introduced_carrier_test, who_greets_is_greeted_and_connected) {
    scripted_link& from = come();
    ASSERT_EQ(events_.links.size(), 1u);
    EXPECT_EQ(events_.addresses[0], "test+tcp://there");
    EXPECT_EQ(events_.rooms, 1);
    EXPECT_EQ(events_.links[0]->their_id(), 77u);
    ASSERT_EQ(from.out.size(), 1u);
    EXPECT_EQ(from.out[0].header.tag, introduction_tag);
}

TEST_F(introduced_carrier_test, one_of_another_kind_is_a_mismatch) {
    come("other+tcp");
    EXPECT_EQ(events_.downs, std::vector<errc>{errc::mismatch});
}

TEST_F(introduced_carrier_test, who_comes_while_there_is_no_memory_is_let_go_without_a_word_more) {
    events_.no_memory = true;
    scripted_link& from = come();
    look();
    EXPECT_EQ(from.shuts, 1);
    EXPECT_EQ(released_, 1);
    EXPECT_TRUE(events_.downs.empty());
    events_.no_memory = false;
    come();
    EXPECT_EQ(events_.links.size(), 1u);
}

TEST_F(introduced_carrier_test, announced_packets_are_waited_for_after_the_farewell) {
    scripted_link& from = come();
    say(from, farewell_tag, farewell(2));
    inner_->link_down(from, {errc::disconnected});
    look();
    EXPECT_TRUE(events_.downs.empty()) << "two packets were announced";
    here_->arrived(*events_.links[0], {});
    look();
    EXPECT_TRUE(events_.downs.empty()) << "one of them is still on its way";
    here_->arrived(*events_.links[0], {});
    look();
    EXPECT_EQ(events_.packets, 2);
    EXPECT_EQ(events_.downs, std::vector<errc>{errc::disconnected});
}

TEST_F(introduced_carrier_test, nobody_sleeps_while_one_who_left_is_waited_for) {
    EXPECT_TRUE(here_->arm()) << "nothing is to be done";
    scripted_link& from = come();
    EXPECT_TRUE(here_->arm());
    say(from, farewell_tag, farewell(1));
    inner_->link_down(from, {errc::disconnected});
    look();
    EXPECT_FALSE(here_->arm()) << "no handle tells of the end of that time";
    here_->arrived(*events_.links[0], {});
    look();
    EXPECT_TRUE(here_->arm());
}

TEST_F(introduced_carrier_test, a_link_stays_as_long_as_its_farewell_is_lent) {
    scripted_link& from = come();
    from.answer = posted::pending;
    events_.links[0]->close();
    ASSERT_EQ(from.out.size(), 2u);
    EXPECT_EQ(from.out[1].header.tag, farewell_tag);
    here_->release(*events_.links[0]);
    EXPECT_EQ(released_, 0);
    look();  // The port below has closed the connection and returned its bytes.
    EXPECT_EQ(from.shuts, 1);
    EXPECT_EQ(released_, 1);
}

TEST_F(introduced_carrier_test, farewells_to_several_that_nobody_takes_do_not_hold_up_the_end) {
    for (int i = 0; i < 3; ++i)
        come().answer = posted::pending;
    for (introduced_link* each : events_.links) {
        each->close();
        here_->release(*each);
    }
    here_.reset();
    EXPECT_EQ(released_, 3);
}

// ---- over TLS

/// Label, context and length in place of a key.
bool told_key(port&, peer_id, std::string_view label, const_bytes context, mutable_bytes into) {
    EXPECT_EQ(label, "EXPORTER-amalgam-packets");
    EXPECT_EQ(into.size(), sizeof(link_secrets::key));
    std::fill(into.begin(), into.end(), std::byte{});
    std::copy(context.begin(), context.end(), into.begin());
    return true;
}

bool no_key(port&, peer_id, std::string_view, const_bytes, mutable_bytes) {
    return false;
}

class proved_carrier_test : public introduced_carrier_test {
protected:
    void open(introduction_trust trust = {&told_key, 3}) {
        here_.reset();
        inner_ = new scripted_port;
        here_ = std::make_unique<scripted_carrier>(std::unique_ptr<port>(inner_), released_, trust);
        here_->start(events_);
    }
    static std::vector<std::byte> introduction_with(std::uint8_t ciphers) {
        std::vector<std::byte> bytes = introduction("test+tcp+tls");
        bytes.push_back(static_cast<std::byte>(ciphers));
        return bytes;
    }
    static std::pair<std::uint64_t, std::uint64_t> ids_in(const link_secrets::key& key) {
        return {load_le<std::uint64_t>(key.data()), load_le<std::uint64_t>(key.data() + 8)};
    }
};

TEST_F(proved_carrier_test, each_direction_has_a_key_that_both_ends_can_derive) {
    open();
    scripted_link& from = inner_->peer();
    say(from, introduction_tag, introduction_with(2));
    ASSERT_EQ(events_.links.size(), 1u);
    introduced_link& link = *events_.links[0];
    const auto secrets = here_->take_secrets(link);
    ASSERT_NE(secrets, nullptr);
    EXPECT_EQ(ids_in(secrets->sending), std::pair(std::uint64_t{77}, link.own_id()));
    EXPECT_EQ(ids_in(secrets->receiving), std::pair(link.own_id(), std::uint64_t{77}));
    EXPECT_EQ(secrets->their_ciphers, 2);
    EXPECT_EQ(here_->take_secrets(link), nullptr) << "once";
    // What we say ends with our ciphers, as our name is empty.
    ASSERT_EQ(from.out.size(), 1u);
    EXPECT_EQ(from.out[0].payload.back(), std::byte{3});
    EXPECT_EQ(from.out[0].payload.size(), 10 + std::string("test+tcp+tls").size() + 1);
}

TEST_F(proved_carrier_test, a_peer_that_takes_our_id_for_its_own_gets_no_key) {
    open();
    ASSERT_TRUE(here_->connect("test+tcp+tls://127.0.0.1:7000"));
    scripted_link& to = *inner_->links.back();
    ASSERT_EQ(to.out.size(), 1u);
    auto same = introduction_with(3);
    std::copy_n(to.out[0].payload.begin(), 8, same.begin());
    say(to, introduction_tag, same);
    EXPECT_EQ(events_.downs, std::vector<errc>{errc::disconnected});
    EXPECT_EQ(events_.rooms, 0);
}

TEST_F(proved_carrier_test, an_introduction_without_ciphers_is_refused) {
    open();
    say(inner_->peer(), introduction_tag, introduction("test+tcp+tls"));
    EXPECT_EQ(events_.downs, std::vector<errc>{errc::disconnected});
}

TEST_F(proved_carrier_test, nobody_is_let_in_of_whom_there_is_no_key) {
    open({&no_key, 3});
    say(inner_->peer(), introduction_tag, introduction_with(3));
    EXPECT_EQ(events_.downs, std::vector<errc>{errc::disconnected});
    EXPECT_EQ(events_.rooms, 0);
}

TEST_F(proved_carrier_test, one_that_does_not_encrypt_is_of_another_kind) {
    open();
    come("test+tcp");
    EXPECT_EQ(events_.downs, std::vector<errc>{errc::mismatch});
}

}  // namespace
}  // namespace amalgam::detail
