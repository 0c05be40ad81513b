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

    void say(int kind, const std::string& text) {
        std::vector<std::byte> record(text.size() + traffic_key::more_bytes);
        ASSERT_TRUE(
            key_->protect(static_cast<record_kind>(kind), as_bytes_of(text), record.data()));
        (void)::send(both_->far_end.get(), record.data(), record.size(), MSG_NOSIGNAL);
    }
    /// Reads until there is nothing, or no more will be: what became of it.
    std::string heard() {
        for (;;) {
            const std::string some = both_->receive_ours(5000);
            if (!some.empty()) continue;
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

// ---- one record at a time

const SSL_CIPHER& cipher_of(std::uint8_t number) {
    static const ssl_context_ptr any(SSL_CTX_new(TLS_method()));
    static const openssl_ptr<SSL> one(SSL_new(any.get()));
    const unsigned char wire[] = {0x13, number};
    return *SSL_CIPHER_find(one.get(), wire);
}

struct key_pair {
    key_pair() {
        (void)secret.read_hex(std::string(64, '5'));
        to = traffic_key::make(cipher_of(1), secret, traffic_key::use::to_protect);
        from = traffic_key::make(cipher_of(1), secret, traffic_key::use::to_open);
    }
    std::vector<std::byte> sealed(const std::string& text) {
        std::vector<std::byte> record(text.size() + traffic_key::more_bytes);
        EXPECT_TRUE(to->protect(record_kind::data, as_bytes_of(text), record.data()));
        return record;
    }
    bool opens(std::vector<std::byte> record) {
        return from->open(record).kind != record_kind::none;
    }
    traffic_secret secret;
    std::unique_ptr<traffic_key> to, from;
};

TEST(traffic_key, opens_what_was_protected_and_each_once) {
    key_pair keys;
    const auto first = keys.sealed("first"), second = keys.sealed("second");
    EXPECT_TRUE(keys.opens(first));
    EXPECT_FALSE(keys.opens(first));
}

TEST(traffic_key, a_record_that_was_left_out_is_noticed) {
    key_pair keys;
    (void)keys.sealed("first");
    EXPECT_FALSE(keys.opens(keys.sealed("second")));
}

TEST(traffic_key, every_bit_counts) {
    const std::size_t bytes = key_pair().sealed("text").size();
    for (std::size_t at = 0; at < bytes; ++at) {
        key_pair keys;
        auto record = keys.sealed("text");
        record[at] ^= std::byte{1};
        EXPECT_FALSE(keys.opens(record)) << at;
    }
}

TEST(traffic_key, records_without_a_kind_or_cut_short_are_none) {
    key_pair keys;
    std::vector<std::byte> record(traffic_key::more_bytes);
    ASSERT_TRUE(keys.to->protect(record_kind::none, {}, record.data()));
    EXPECT_FALSE(keys.opens(record));
    for (std::size_t bytes = 0; bytes < traffic_key::more_bytes; ++bytes)
        EXPECT_FALSE(key_pair().opens(std::vector<std::byte>(bytes)));
}

TEST(traffic_key, of_a_secret_that_does_not_fit_there_is_none) {
    traffic_secret secret;
    EXPECT_FALSE(secret.read_hex("0g"));
    EXPECT_FALSE(secret.read_hex("012"));
    EXPECT_FALSE(secret.read_hex(std::string(98, '0')));
    EXPECT_TRUE(secret.read_hex(std::string(64, '0')));
    EXPECT_EQ(traffic_key::make(cipher_of(2), secret, traffic_key::use::to_open), nullptr)
        << "SHA-384 needs 48 bytes";
}

}  // namespace
}  // namespace amalgam::detail
