#include "fabric/trust/tls/traffic_key.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/detail/text.hpp>

namespace amalgam::detail {
namespace {

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

/// The bytes that these hexadecimal digits stand for.
std::vector<std::byte> bytes_of(std::string_view digits) {
    std::vector<std::byte> made;
    for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
        made.push_back(
            static_cast<std::byte>(hex_digit(digits[i]) << 4 | hex_digit(digits[i + 1])));
    return made;
}

TEST(traffic_key, makes_the_records_of_rfc_8448) {
    // Its section 3: of the client, 50 bytes and then "close_notify".
    traffic_secret secret;
    ASSERT_TRUE(
        secret.read_hex("9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5"));
    const auto key = traffic_key::make(cipher_of(1), secret, traffic_key::use::to_protect);
    std::vector<std::byte> text(50);
    for (std::size_t i = 0; i < text.size(); ++i)
        text[i] = static_cast<std::byte>(i);
    std::vector<std::byte> made(text.size() + traffic_key::more_bytes);
    ASSERT_TRUE(key->protect(record_kind::data, text, made.data()));
    EXPECT_EQ(made,
              bytes_of("1703030043a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f2b9819a8a5b"
                       "46b395bd54a9a20441e2b62974e1f5a6292a2977014bd1e3deae63aeebb21694915e4"));
    made.resize(2 + traffic_key::more_bytes);
    ASSERT_TRUE(key->protect(record_kind::alert, bytes_of("0100"), made.data()));
    EXPECT_EQ(made, bytes_of("1703030013c9872760655666b74d7ff1153efd6db6d0b0e3"));
}

TEST(traffic_key, a_number_has_eight_bytes_and_each_is_in_the_nonce) {
    key_pair keys;
    const auto sealed_as = [&](std::uint64_t number) {
        const auto key =
            traffic_key::make(cipher_of(1), keys.secret, traffic_key::use::to_protect, number);
        std::vector<std::byte> record(4 + traffic_key::more_bytes);
        EXPECT_TRUE(
            key->protect(record_kind::data, as_bytes_of(std::string_view("text")), record.data()));
        return record;
    };
    for (int i = 0; i < 8; ++i) {
        const std::uint64_t number = std::uint64_t{1} << (8 * i);
        EXPECT_NE(sealed_as(number), sealed_as(0)) << i;
        auto from = traffic_key::make(cipher_of(1), keys.secret, traffic_key::use::to_open, number);
        auto record = sealed_as(number);
        EXPECT_EQ(from->open(record).kind, record_kind::data) << i;
        record = sealed_as(number + 1);
        EXPECT_EQ(from->open(record).kind, record_kind::data) << "the next one";
    }
}

TEST(traffic_key, a_new_key_is_another_and_counts_from_the_start) {
    for (const std::uint8_t cipher : {1, 2, 3}) {
        traffic_secret secret;
        ASSERT_TRUE(secret.read_hex(std::string(cipher == 2 ? 96 : 64, '5')));
        const auto to = traffic_key::make(cipher_of(cipher), secret, traffic_key::use::to_protect);
        const auto late =
            traffic_key::make(cipher_of(cipher), secret, traffic_key::use::to_open, 1000);
        std::vector<std::byte> first(1 + traffic_key::more_bytes), second = first;
        ASSERT_TRUE(
            to->protect(record_kind::data, as_bytes_of(std::string_view("x")), first.data()));
        ASSERT_TRUE(to->next() && late->next());
        ASSERT_TRUE(
            to->protect(record_kind::data, as_bytes_of(std::string_view("x")), second.data()));
        EXPECT_NE(first, second);
        EXPECT_EQ(late->open(second).kind, record_kind::data);
    }
}

TEST(traffic_key, a_secret_that_was_erased_is_in_no_byte) {
    traffic_secret secret;
    ASSERT_TRUE(secret.read_hex(std::string(96, '5')));
    secret.erase();
    EXPECT_EQ(secret.size, 0);
    for (const unsigned char each : secret.bytes)
        EXPECT_EQ(each, 0);
}

TEST(traffic_key, more_text_than_a_record_may_have_is_none) {
    key_pair keys;
    for (const std::size_t bytes : {traffic_key::max_plain_bytes, traffic_key::max_plain_bytes + 1})
        EXPECT_EQ(keys.opens(keys.sealed(std::string(bytes, 'x'))),
                  bytes == traffic_key::max_plain_bytes);
}

TEST(traffic_key, padding_is_taken_off_and_zeros_of_the_text_are_not) {
    key_pair keys;
    std::string text("ab\0\0", 4);
    auto plain = keys.sealed(text);
    EXPECT_EQ(keys.from->open(plain).plain.size(), 4u);
    // The kind of what is made is part of the text, and what protect() adds is padding.
    text.push_back(static_cast<char>(record_kind::alert));
    text.append(9, '\0');
    std::vector<std::byte> padded(text.size() + traffic_key::more_bytes);
    ASSERT_TRUE(keys.to->protect(record_kind::none, as_bytes_of(text), padded.data()));
    const auto found = keys.from->open(padded);
    EXPECT_EQ(found.kind, record_kind::alert);
    EXPECT_EQ(found.plain.size(), 4u);
}

}  // namespace
}  // namespace amalgam::detail
