// A session that protects its records itself, and OpenSSL at the other end.
#include <cerrno>
#include <new>
#include <string>

#include <gtest/gtest.h>
#include <openssl/err.h>
#include <sys/socket.h>

#include "fabric/trust/tls/records_testing.hpp"
#include "memory/memory.hpp"

namespace amalgam::detail {
namespace {

using state = tls_session::state;
using side = tls_session::side;

iovec as_piece(const std::string& text) {
    return {const_cast<char*>(text.data()), text.size()};
}

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
        const iovec piece = as_piece("x");
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

TEST_P(tls_records, after_the_peer_has_said_its_end_ours_still_arrive) {
    ASSERT_TRUE(both.shake_hands());
    EXPECT_TRUE(both.hears("x"));
    EXPECT_EQ(SSL_shutdown(both.theirs.get()), 0);
    EXPECT_EQ(both.receive_ours(10), "");
    EXPECT_EQ(both.last_error, 0);
    EXPECT_TRUE(both.is_heard(text_of(40'000)));
    both.ours->say_end();
    EXPECT_EQ(SSL_shutdown(both.theirs.get()), 1) << "both have ended";
}

TEST_P(tls_records, with_one_byte_each_arrive_in_order) {
    ASSERT_TRUE(both.shake_hands());
    const std::string text = text_of(3 * tls_session::records_at_a_time);
    for (const char& each : text)
        ASSERT_EQ(SSL_write(both.theirs.get(), &each, 1), 1);
    std::string got;
    while (got.size() < text.size()) {
        const std::string more = both.receive_ours(1000);
        ASSERT_TRUE(!more.empty() || both.last_error == EAGAIN);
        got += more;
    }
    EXPECT_EQ(got, text);
    for (const char each : text)
        EXPECT_TRUE(both.send_ours(std::string(1, each)));
    EXPECT_EQ(both.heard, text);
}

TEST(tls_records_without_memory, arrive_whatever_allocation_fails_where_they_are_taken_over) {
    const test_authority authority;
    const test_certificate own = authority.issue();
    const ssl_context_ptr context = bare_context(authority, &own);
    const std::string text = text_of(30'000);
    bool struck = true;
    for (std::uint64_t n = 1; struck; ++n) {
        SCOPED_TRACE(n);
        mixed_pair both(*context, side::accepting);
        // Its last message and its first records are there before our last step.
        while (SSL_do_handshake(both.theirs.get()) != 1)
            ASSERT_NE(both.ours->shake_hands(), state::failed);
        ERR_clear_error();
        ASSERT_EQ(SSL_write(both.theirs.get(), text.data(), 30'000), 30'000);
        try {
            const memory::failing fails(n);
            const state end = both.ours->shake_hands();
            struck = memory::failing::struck();
            if (end == state::failed && struck) continue;
            ASSERT_EQ(end, state::complete);
        } catch (const std::bad_alloc&) {
            continue;
        }
        std::string got;
        while (got.size() < text.size()) {
            const std::string more = both.receive_ours(7'001);
            ASSERT_TRUE(!more.empty() || both.last_error == EAGAIN) << both.last_error;
            got += more;
        }
        EXPECT_EQ(got, text);
        EXPECT_TRUE(both.is_heard(text));
    }
}

// ---- what a peer may ask for that we have not

/// Ciphers that we never offer: a session goes on with OpenSSL's own records.
TEST(tls_records_of_others, of_ciphers_that_are_not_ours_are_left_to_openssl) {
    const test_authority authority;
    const test_certificate own = authority.issue();
    for (const char* cipher : {"TLS_AES_128_CCM_SHA256", "TLS_AES_128_CCM_8_SHA256"})
        for (const side which : {side::connecting, side::accepting}) {
            SCOPED_TRACE(cipher);
            const ssl_context_ptr context = bare_context(authority, &own);
            SSL_CTX_set_ciphersuites(context.get(), cipher);
            mixed_pair both(*context, which);
            ASSERT_TRUE(both.shake_hands());
            ASSERT_STREQ(SSL_get_cipher(both.theirs.get()), cipher);
            for (const std::size_t bytes : {1u, 16'384u, 100'000u}) {
                both.ours->renew_key();
                ASSERT_EQ(SSL_key_update(both.theirs.get(), SSL_KEY_UPDATE_REQUESTED), 1);
                EXPECT_TRUE(both.hears(text_of(bytes))) << bytes;
                EXPECT_TRUE(both.is_heard(text_of(bytes))) << bytes;
            }
            both.ours->say_end();
            both.pump_theirs();
            EXPECT_EQ(SSL_get_shutdown(both.theirs.get()), SSL_RECEIVED_SHUTDOWN);
        }
}

TEST(tls_records_of_others, are_as_short_as_the_peer_has_asked_for) {
    const test_authority authority;
    const test_certificate own = authority.issue();
    const ssl_context_ptr context = bare_context(authority, &own);
    for (const std::uint8_t asked :
         {TLSEXT_max_fragment_length_512, TLSEXT_max_fragment_length_4096}) {
        SCOPED_TRACE(int{asked});
        mixed_pair both(*context, side::accepting);
        ASSERT_EQ(SSL_set_tlsext_max_fragment_length(both.theirs.get(), asked), 1);
        ASSERT_TRUE(both.shake_hands());
        for (const std::size_t bytes : {1u, 511u, 512u, 513u, 16'384u, 100'000u}) {
            EXPECT_TRUE(both.is_heard(text_of(bytes))) << bytes;
            EXPECT_TRUE(both.hears(text_of(bytes))) << bytes;
        }
    }
}

}  // namespace
}  // namespace amalgam::detail
