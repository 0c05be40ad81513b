// A peer that is let in, and lies: whatever is in its records.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>

#include "fabric/trust/tls/records_testing.hpp"

namespace amalgam::detail {
namespace {

using side = tls_session::side;

constexpr std::size_t alert_bytes = 2 + traffic_key::more_bytes;
constexpr int alert = 21, handshake = 22, data = 23;

TEST(tls_records_of_liars, messages_that_are_not_due_end_the_connection_with_a_sentence) {
    const std::string wrong = "what it sent is not TLS as agreed: ";
    const struct {
        int kind;
        std::string text;
        const char* why;
    } all[] = {
        {handshake, "", "an empty message of TLS"},
        {handshake, std::string("\x18\0\0\1\2", 5), "a message of TLS that is not due"},
        {handshake, std::string("\x18\0\0\2\0\0", 6), "a message of TLS that is not due"},
        {handshake, std::string("\x18\0\0\1\0\x18\0\0\1\0", 10),
         "a message of TLS that is not due"},
        {handshake, std::string("\x18\0\0", 3), "a message of TLS that is not due"},
        {handshake, std::string("\1\0\0\0", 4), "a message of TLS that is not due"},
        {handshake, std::string("\4\0\0\1x", 5), "a message of TLS that is not due"},
        {20, "\1", "a record that is not due"},
        {99, "x", "a record that is not due"},
        {alert, "\2", "an alert of another size"},
    };
    for (const auto& each : all)
        for (const bool late : {false, true}) {
            liar one(side::accepting);
            if (late) one.say(data, "x");
            one.say(each.kind, each.text);
            EXPECT_EQ(one.heard(), wrong + each.why) << each.kind << ' ' << late;
            EXPECT_EQ(one.answered(), alert_bytes);
        }
}

TEST(tls_records_of_liars, openssl_is_given_wrong_tickets_and_its_answer_never_leaves) {
    // It would be encrypted by a key and a nonce that the session uses itself.
    liar one(side::connecting);
    one.say(handshake, std::string("\4\0\0\5abcde", 9));
    EXPECT_NE(one.heard(), "goes on");
    EXPECT_EQ(one.answered(), 0u);
}

TEST(tls_records_of_liars, a_ticket_in_pieces_is_passed_over_and_nothing_may_come_between) {
    std::string ticket("\4\0\x40\0", 4);
    ticket += std::string(0x4000, 't');
    for (const bool interrupted : {false, true}) {
        liar one(side::connecting);
        one.say(data, "x");
        one.say(handshake, ticket.substr(0, 10'000));
        EXPECT_EQ(one.heard(), "goes on");
        if (interrupted) one.say(data, "y");
        one.say(handshake, ticket.substr(10'000));
        EXPECT_EQ(one.heard(), interrupted
                                   ? "what it sent is not TLS as agreed: a record that is not due"
                                   : "goes on");
    }
}

TEST(tls_records_of_liars, records_may_come_byte_by_byte_and_nothing_is_told_before_the_last) {
    liar one(side::accepting);
    const std::vector<std::byte> record = one.made(data, "text");
    for (std::size_t i = 0; i < record.size(); ++i) {
        EXPECT_EQ(one.received(), "") << i;
        one.send(std::span(record).subspan(i, 1));
    }
    EXPECT_EQ(one.received(), "text");
    EXPECT_EQ(one.heard(), "goes on");
}

TEST(tls_records_of_liars, a_header_that_no_record_has_is_refused_before_what_it_announces) {
    const struct {
        const char* header;
        const char* why;
    } all[] = {
        {"\x17\x03\x03\x41\x01", "a record longer than any may be"},
        {"\x17\x03\x03\xff\xff", "a record longer than any may be"},
        {"\x15\x03\x03\x00\x02", "a record that is not encrypted"},
        {"\x16\x03\x03\x00\x05", "a record that is not encrypted"},
        {"\x14\x03\x03\x00\x01", "a record that is not encrypted"},
        {"\x17\x03\x03\x00\x00", "decryption failed or bad record mac"},
        {"\x17\x03\x03\x40\xff", nullptr},
    };
    for (const auto& each : all) {
        liar one(side::accepting);
        one.send(as_bytes_of(std::string_view(each.header, 5)));
        EXPECT_EQ(one.heard(), each.why == nullptr
                                   ? "goes on"
                                   : std::string("what it sent is not TLS as agreed: ") + each.why);
        EXPECT_EQ(one.answered(), each.why == nullptr ? 0 : alert_bytes);
    }
}

TEST(tls_records_of_liars, a_record_may_be_padded_up_to_the_most_that_travels) {
    liar one(side::accepting);
    std::string text = "x" + std::string(1, static_cast<char>(data));
    text.resize(traffic_key::max_protected_bytes - 1 - traffic_key::tag_bytes);
    one.send(one.made(0, text));
    EXPECT_EQ(one.received(), "x");
    EXPECT_EQ(one.heard(), "goes on");
}

TEST(tls_records_of_liars, a_flood_of_records_that_say_nothing_ends_the_connection) {
    for (const bool many : {false, true}) {
        liar one(side::accepting);
        one.say(data, "x");
        for (unsigned i = 0; i < (many ? 2 * tls_session::messages_a_second : 30); ++i)
            one.say(data, "");
        const std::string end = one.heard();
        EXPECT_EQ(end.starts_with("it sent more than"), many) << end;
    }
    liar other(side::accepting);
    other.say(data, "x");
    for (unsigned i = 0; i < 2 * tls_session::messages_a_second; ++i)
        other.say(alert, "\1\x5a");
    EXPECT_TRUE(other.heard().starts_with("it sent more than")) << "canceled again and again";
}

TEST(tls_records_of_liars, a_closing_that_was_canceled_before_is_no_error) {
    for (const bool late : {false, true}) {
        liar one(side::accepting);
        if (late) one.say(data, "x");
        one.say(alert, "\1\x5a");
        EXPECT_EQ(one.heard(), "goes on") << late;
        one.say(alert, std::string("\1\0", 2));
        one.say(data, "nobody reads this");
        EXPECT_EQ(one.received(), "");
        EXPECT_EQ(one.heard(), "the end") << late;
    }
}

TEST(tls_records_of_liars, nothing_is_sent_behind_an_alert_that_ends_it) {
    const struct {
        int kind;
        std::string text;
        std::size_t answer;
    } all[] = {{99, "x", alert_bytes}, {alert, "\2\x14", 0}};
    for (const auto& each : all)
        for (const bool late : {false, true}) {
            liar one(side::accepting);
            if (late) one.say(data, "x");
            one.say(each.kind, each.text);
            EXPECT_NE(one.heard(), "goes on");
            EXPECT_EQ(one.answered(), each.answer);
            EXPECT_FALSE(one.ours().write_whole(as_bytes_of(std::string_view("more"))));
            one.ours().say_end();
            one.ours().renew_key();
            EXPECT_EQ(one.answered(), 0u) << each.kind << ' ' << late;
        }
}

TEST(tls_records_of_liars, nothing_is_sent_behind_the_end_that_we_said) {
    liar one(side::accepting);
    one.ours().say_end();
    EXPECT_EQ(one.answered(), alert_bytes);
    one.say(handshake, std::string("\x18\0\0\1\1", 5));
    EXPECT_EQ(one.heard(), "goes on");
    one.ours().say_end();
    EXPECT_FALSE(one.ours().write_whole(as_bytes_of(std::string_view("more"))));
    EXPECT_EQ(one.answered(), 0u);
}

TEST(tls_records_of_liars, a_ticket_and_a_new_key_may_share_a_record_and_nothing_follows_a_key) {
    const std::string ticket("\4\0\0\3abc", 7), key("\x18\0\0\1\0", 5);
    for (const bool key_first : {false, true}) {
        liar one(side::connecting);
        one.say(data, "x");
        one.say(handshake, key_first ? key + ticket : ticket + ticket + key);
        if (!key_first) one.renew_key();
        if (!key_first) one.say(data, "y");
        EXPECT_EQ(one.heard(), key_first ? "what it sent is not TLS as agreed: a message of TLS "
                                           "that is not due"
                                         : "goes on");
    }
}

TEST(tls_records_of_liars, whatever_is_in_them_ends_the_connection_or_does_not) {
    seeded_random dice(11);
    std::unique_ptr<liar> one, other;
    for (int i = 0; i < 300; ++i) {
        if (i % 10 == 0) one = std::make_unique<liar>(side::accepting);
        if (i % 10 == 0) other = std::make_unique<liar>(side::connecting);
        for (liar* each : {one.get(), other.get()}) {
            std::string text(dice.below(dice.chance(0.1) ? 16'384 : 12), ' ');
            for (char& c : text)
                c = static_cast<char>(dice.chance(0.5) ? dice.below(5) : dice());
            if (!text.empty() && dice.chance(0.5)) text[0] = dice.chance(0.5) ? '\x18' : '\4';
            each->say(dice.chance(0.8) ? static_cast<int>(20 + dice.below(4))
                                       : static_cast<int>(dice.below(256)),
                      text);
            EXPECT_FALSE(each->heard().empty());
            (void)each->answered();
        }
    }
}

}  // namespace
}  // namespace amalgam::detail
