// A session that protects its records itself, and OpenSSL at the other end.
#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <openssl/err.h>
#include <sys/socket.h>

#include <amalgam/core/random.hpp>
#include <amalgam/core/unique_fd.hpp>

#include "fabric/trust/tls/tls_session.hpp"
#include "fabric/trust/tls/tls_testing.hpp"
#include "fabric/trust/tls/traffic_key.hpp"

namespace amalgam::detail {
namespace {

using state = tls_session::state;
using side = tls_session::side;

iovec piece_of(const std::string& text) {
    return {const_cast<char*>(text.data()), text.size()};
}

/// `ours` at one end; at the other what only OpenSSL has made.
struct mixed_pair {
    mixed_pair(SSL_CTX& context, side which) {
        int both[2];
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both) != 0)
            throw std::runtime_error("no sockets");
        near_end.reset(both[0]);
        far_end.reset(both[1]);
        ours.emplace(context, which, both[0], record);
        theirs.reset(SSL_new(&context));
        SSL_set_fd(theirs.get(), both[1]);
        if (which == side::connecting)
            SSL_set_accept_state(theirs.get());
        else
            SSL_set_connect_state(theirs.get());
    }

    bool shake_hands() {
        bool theirs_done = false;
        state mine = state::waiting;
        while (mine == state::waiting || !theirs_done) {
            if (mine == state::waiting) mine = ours->shake_hands();
            if (mine == state::failed) return false;
            if (theirs_done) continue;
            const int now = SSL_do_handshake(theirs.get());
            if (now != 1 && SSL_get_error(theirs.get(), now) != SSL_ERROR_WANT_READ) return false;
            theirs_done = now == 1;
        }
        return true;
    }
    bool send_ours(const std::string& text) {
        for (std::size_t at = 0; at < text.size();) {
            const std::string left = text.substr(at);
            const iovec piece = piece_of(left);
            int error = 0;
            at += ours->write({&piece, 1}, error);
            if (error != 0) return false;
            pump_theirs();
            (void)ours->drain();
        }
        return true;
    }
    void pump_theirs() {
        char some[20'000];
        for (int got; (got = SSL_read(theirs.get(), some, sizeof some)) > 0;)
            heard.append(some, static_cast<std::size_t>(got));
        ERR_clear_error();
    }
    std::string receive_ours(std::size_t most) {
        std::string some(most, ' ');
        const iovec into = piece_of(some);
        const ssize_t got = ours->read({&into, 1}, false);
        last_error = got < 0 ? errno : 0;
        some.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
        return some;
    }
    /// Whether everything that the other side writes arrives.
    bool hears(const std::string& text) {
        std::string got;
        for (std::size_t at = 0; at < text.size();) {
            const auto some = static_cast<int>(std::min<std::size_t>(text.size() - at, 20'000));
            const int gone = SSL_write(theirs.get(), text.data() + at, some);
            if (gone <= 0) return false;
            at += static_cast<std::size_t>(gone);
            while (got.size() < at) {
                const std::string more = receive_ours(7'001);
                if (more.empty() && last_error != EAGAIN) return false;
                got += more;
            }
        }
        return got == text;
    }
    bool is_heard(const std::string& text) {
        heard.clear();
        if (!send_ours(text)) return false;
        pump_theirs();
        return heard == text;
    }

    tls_record record;
    unique_fd near_end, far_end;
    std::optional<tls_session> ours;
    openssl_ptr<SSL> theirs;
    std::string heard;
    int last_error = 0;
};

std::string text_of(std::size_t bytes) {
    std::string text(bytes, ' ');
    for (std::size_t i = 0; i < bytes; ++i)
        text[i] = static_cast<char>(i * 7 + (i >> 11));
    return text;
}

struct setting {
    const char* cipher;
    side which;
};

class tls_records : public testing::TestWithParam<setting> {
protected:
    tls_records() { SSL_CTX_set_ciphersuites(context.get(), GetParam().cipher); }

    test_authority authority;
    test_certificate own = authority.issue();
    ssl_context_ptr context = bare_context(authority, &own);
    mixed_pair both{*context, GetParam().which};
};

TEST_P(tls_records, of_any_size_are_as_openssl_opens_and_makes_them) {
    ASSERT_TRUE(both.shake_hands());
    for (const std::size_t bytes : {1u, 15u, 16u, 16'383u, 16'384u, 16'385u, 100'000u}) {
        EXPECT_TRUE(both.is_heard(text_of(bytes))) << bytes;
        EXPECT_TRUE(both.hears(text_of(bytes))) << bytes;
    }
}

TEST_P(tls_records, follow_new_keys_that_either_side_asks_for) {
    ASSERT_TRUE(both.shake_hands());
    for (int i = 0; i < 6; ++i) {
        both.ours->renew_key();
        EXPECT_TRUE(both.is_heard(text_of(1000)));
        ASSERT_EQ(SSL_key_update(both.theirs.get(), i % 2 == 0 ? SSL_KEY_UPDATE_REQUESTED
                                                               : SSL_KEY_UPDATE_NOT_REQUESTED),
                  1);
        EXPECT_TRUE(both.hears(text_of(40'000)));
        EXPECT_TRUE(both.is_heard(text_of(40'000))) << "a new key was answered by a new key";
    }
}

TEST_P(tls_records, get_a_new_key_before_the_old_one_is_used_up) {
    ASSERT_TRUE(both.shake_hands());
    // RFC 8446, 5.5: 2^24.5 records.
    both.ours->count_records((1u << 23) - 3);
    std::size_t bytes[4] = {};
    for (std::size_t& each : bytes) {
        const iovec piece = piece_of("x");
        int error = 0;
        ASSERT_EQ(both.ours->write({&piece, 1}, error), 1u);
        char some[1000];
        each = static_cast<std::size_t>(::recv(both.far_end.get(), some, sizeof some, MSG_PEEK));
        both.pump_theirs();
    }
    EXPECT_EQ(both.heard, "xxxx");
    EXPECT_EQ(bytes[1], 1 + traffic_key::more_bytes);
    EXPECT_EQ(bytes[2], 1 + 5 + 2 * traffic_key::more_bytes) << "a key, and then the text";
    EXPECT_EQ(bytes[3], 1 + traffic_key::more_bytes);
}

TEST_P(tls_records, that_came_with_the_end_of_the_handshake_are_opened_here_too) {
    if (GetParam().which == side::accepting) {
        // Its last message and its first record are there before we look.
        while (SSL_do_handshake(both.theirs.get()) != 1)
            ASSERT_NE(both.ours->shake_hands(), state::failed);
    } else {
        // As are its tickets and its first record.
        while (!SSL_is_init_finished(both.theirs.get())) {
            ASSERT_NE(both.ours->shake_hands(), state::failed);
            (void)SSL_do_handshake(both.theirs.get());
        }
    }
    ERR_clear_error();
    const std::string text = text_of(30'000);
    ASSERT_EQ(SSL_write(both.theirs.get(), text.data(), 30'000), 30'000);
    if (GetParam().which == side::accepting) {
        ASSERT_EQ(both.ours->shake_hands(), state::complete);
    }
    std::string got;
    while (got.size() < text.size()) {
        const std::string more = both.receive_ours(7'001);
        ASSERT_TRUE(!more.empty() || both.last_error == EAGAIN);
        got += more;
    }
    EXPECT_EQ(got, text);
    both.pump_theirs();
    std::size_t taken = 0;
    EXPECT_EQ(SSL_write_ex(both.ours->native(), "x", 1, &taken), 1);
    char some;
    EXPECT_EQ(::recv(both.far_end.get(), &some, 1, MSG_DONTWAIT), -1)
        << "OpenSSL may send nothing any more";
    EXPECT_TRUE(both.is_heard(text));
}

TEST_P(tls_records, end_by_a_message_that_both_understand) {
    ASSERT_TRUE(both.shake_hands());
    EXPECT_TRUE(both.is_heard("x"));
    EXPECT_TRUE(both.hears("y"));
    both.ours->say_end();
    both.pump_theirs();
    EXPECT_EQ(SSL_get_shutdown(both.theirs.get()), SSL_RECEIVED_SHUTDOWN);
    (void)SSL_shutdown(both.theirs.get());
    EXPECT_EQ(both.receive_ours(10), "");
    EXPECT_EQ(both.last_error, 0);
}

TEST_P(tls_records, that_are_padded_are_taken_without_the_padding) {
    ASSERT_TRUE(both.shake_hands());
    SSL_set_block_padding(both.theirs.get(), 4096);
    for (const std::size_t bytes : {1u, 4095u, 4096u, 16'384u})
        EXPECT_TRUE(both.hears(text_of(bytes))) << bytes;
}

TEST_P(tls_records, that_are_wrong_are_answered_by_an_alert_and_nothing_more) {
    ASSERT_TRUE(both.shake_hands());
    EXPECT_TRUE(both.is_heard("x"));
    const std::string wrong("\x17\x03\x03\x00\x20zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz", 5 + 32);
    ASSERT_EQ(::send(both.far_end.get(), wrong.data(), wrong.size(), 0),
              static_cast<ssize_t>(wrong.size()));
    for (std::string some = " "; !some.empty() || both.last_error == EAGAIN;)
        some = both.receive_ours(10);
    EXPECT_EQ(both.last_error, EPROTO);
    EXPECT_EQ(both.ours->why().sentence,
              "what it sent is not TLS as agreed: decryption failed or bad record mac");
    EXPECT_EQ(ERR_peek_error(), 0u);
    char nothing;
    EXPECT_LE(SSL_read(both.theirs.get(), &nothing, 1), 0);
    EXPECT_EQ(ERR_GET_REASON(ERR_get_error()), SSL_R_SSLV3_ALERT_BAD_RECORD_MAC);
    ERR_clear_error();
    EXPECT_EQ(::recv(both.far_end.get(), &nothing, 1, MSG_DONTWAIT), -1);
}

TEST_P(tls_records, an_alert_at_any_time_is_told_in_a_sentence) {
    ASSERT_TRUE(both.shake_hands());
    EXPECT_TRUE(both.hears("x"));
    // The other side meets a wrong record, and says so.
    const std::string wrong("\x17\x03\x03\x00\x20zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz", 5 + 32);
    ASSERT_EQ(::send(both.near_end.get(), wrong.data(), wrong.size(), 0),
              static_cast<ssize_t>(wrong.size()));
    both.pump_theirs();
    EXPECT_EQ(both.receive_ours(10), "");
    EXPECT_EQ(both.last_error, EPROTO);
    EXPECT_EQ(both.ours->why().sentence,
              "it ended the connection by an alert of TLS: bad record mac");
}

INSTANTIATE_TEST_SUITE_P(ciphers, tls_records,
                         testing::Values(setting{"TLS_AES_128_GCM_SHA256", side::connecting},
                                         setting{"TLS_AES_128_GCM_SHA256", side::accepting},
                                         setting{"TLS_AES_256_GCM_SHA384", side::connecting},
                                         setting{"TLS_AES_256_GCM_SHA384", side::accepting},
                                         setting{"TLS_CHACHA20_POLY1305_SHA256", side::connecting},
                                         setting{"TLS_CHACHA20_POLY1305_SHA256", side::accepting}),
                         [](const auto& each) {
                             return std::string(each.param.cipher) +
                                    (each.param.which == side::connecting ? "_connecting"
                                                                          : "_accepting");
                         });

// ---- a peer that is let in, and lies

/// What it sends is protected as it should be, and anything may be in it.
class liar {
public:
    explicit liar(side of_ours) {
        static liar* current;
        current = this;
        for (const ssl_context_ptr* each : {&ours_, &context_})
            SSL_CTX_set_num_tickets(each->get(), 0);
        SSL_CTX_set_keylog_callback(context_.get(), [](const SSL*, const char* line) {
            const std::string_view all(line);
            const bool of_client = all.starts_with("CLIENT_TRAFFIC_SECRET_0 ");
            if (!of_client && !all.starts_with("SERVER_TRAFFIC_SECRET_0 ")) return;
            if (of_client == (current->which_ == side::accepting))
                (void)current->secret_.read_hex(all.substr(all.rfind(' ') + 1));
        });
        which_ = of_ours;
        both_.emplace(*ours_, of_ours);
        both_->theirs.reset(SSL_new(context_.get()));
        SSL_set_fd(both_->theirs.get(), both_->far_end.get());
        if (of_ours == side::connecting)
            SSL_set_accept_state(both_->theirs.get());
        else
            SSL_set_connect_state(both_->theirs.get());
        if (!both_->shake_hands()) throw std::runtime_error("no handshake");
        key_ = traffic_key::make(*SSL_get_current_cipher(both_->theirs.get()), secret_,
                                 traffic_key::use::to_protect);
    }

    std::vector<std::byte> made(int kind, const std::string& text) {
        std::vector<std::byte> record(text.size() + traffic_key::more_bytes);
        EXPECT_TRUE(
            key_->protect(static_cast<record_kind>(kind), as_bytes_of(text), record.data()));
        return record;
    }
    void send(const_bytes bytes) {
        (void)::send(both_->far_end.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    }
    void say(int kind, const std::string& text) { send(made(kind, text)); }
    void renew_key() { EXPECT_TRUE(key_->next()); }
    /// Of what it sends.
    const traffic_secret& secret() const noexcept { return secret_; }
    tls_session& ours() { return *both_->ours; }
    /// By one read.
    std::string received() { return both_->receive_ours(20'000); }
    /// Reads until there is nothing, or no more will be: what became of it.
    std::string heard() {
        for (;;) {
            const std::string some = both_->receive_ours(5000);
            const bool has_more = both_->last_error == EAGAIN && !both_->ours->drained();
            if (!some.empty() || has_more) continue;
            if (both_->last_error == EPROTO) return both_->ours->why().sentence;
            return both_->last_error == EAGAIN ? "goes on" : "the end";
        }
    }
    /// Bytes that ours sent since the handshake.
    std::size_t answered() {
        char some[1000];
        const ssize_t got = ::recv(both_->far_end.get(), some, sizeof some, MSG_DONTWAIT);
        return got > 0 ? static_cast<std::size_t>(got) : 0;
    }

private:
    test_authority authority_;
    test_certificate own_ = authority_.issue();
    ssl_context_ptr ours_ = bare_context(authority_, &own_);
    ssl_context_ptr context_ = bare_context(authority_, &own_);
    side which_{};
    traffic_secret secret_;
    std::optional<mixed_pair> both_;
    std::unique_ptr<traffic_key> key_;
};

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

TEST(tls_records_of_liars, the_session_keeps_no_secret_that_its_keys_were_made_of) {
    for (const side which : {side::connecting, side::accepting}) {
        liar one(which);
        const auto* const at = reinterpret_cast<const char*>(&one.ours());
        const std::string_view all(at, sizeof(tls_session));
        const std::string_view secret(reinterpret_cast<const char*>(one.secret().bytes.data()),
                                      one.secret().size);
        ASSERT_FALSE(secret.empty());
        EXPECT_EQ(all.find(secret), all.npos);
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
