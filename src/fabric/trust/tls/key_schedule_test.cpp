#include "fabric/trust/tls/key_schedule.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace amalgam::detail {
namespace {

const cipher_suite& aes_128_gcm() {
    static const ssl_context_ptr any(SSL_CTX_new(TLS_method()));
    static const openssl_ptr<SSL> one(SSL_new(any.get()));
    const unsigned char wire[] = {0x13, 1};
    return *cipher_suite::of(*SSL_CIPHER_find(one.get(), wire));
}

struct secret_of : traffic_secret {
    explicit secret_of(std::string_view digits) { EXPECT_TRUE(read_hex(digits)); }
};

bool is(const traffic_secret& expected, std::span<const unsigned char> found) {
    return std::ranges::equal(expected.value(), found);
}

TEST(key_schedule, makes_the_secrets_of_rfc_8448) {
    // Its section 3.
    const secret_of handshake("1dc826e93606aa6fdc0aadc12f741b01046aa6b99f691ed221a9f0ca043fbeac");
    const secret_of master("18df06843d13a08bf2a449844c5f8a478001bc4d4c627984d5a41da8d0402919");
    const secret_of transcript("9608102a0f1ccc6db6250b7b7e417b1a000eaada3daae4777a7686c9ff83df13");
    const cipher_suite& by = aes_128_gcm();
    std::array<unsigned char, 32> made{};
    ASSERT_TRUE(by.master_of(handshake.value(), made.data()));
    EXPECT_TRUE(is(master, made));
    ASSERT_TRUE(by.expand(master.value(), "c ap traffic", transcript.value(), made));
    EXPECT_TRUE(
        is(secret_of("9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5"), made));
    ASSERT_TRUE(by.expand(master.value(), "exp master", transcript.value(), made));
    EXPECT_TRUE(
        is(secret_of("fe22f881176eda18eb8f44529e6792c50c9a3f89452f68d8ae311b4309d3cf50"), made));
}

TEST(key_schedule, refuses_what_is_too_long_for_one_digest) {
    const secret_of some(std::string(64, '5'));
    const cipher_suite& by = aes_128_gcm();
    std::array<unsigned char, 49> made{};
    const std::span<unsigned char> digest(made.data(), 32);
    const std::string longest(cipher_suite::most_label_bytes, 'x');
    EXPECT_TRUE(by.expand(some.value(), longest, {made.data(), 48}, digest));
    EXPECT_FALSE(by.expand(some.value(), longest + "x", {}, digest));
    EXPECT_FALSE(by.expand(some.value(), "x", made, digest));
    EXPECT_FALSE(by.expand(some.value(), "x", {}, {made.data(), 33}));
}

}  // namespace
}  // namespace amalgam::detail
