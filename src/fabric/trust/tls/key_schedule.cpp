#include "fabric/trust/tls/key_schedule.hpp"

#include <cstring>

#include <amalgam/core/detail/text.hpp>

namespace amalgam::detail {
namespace {

// Both: RFC 8446, B.4.
constexpr std::uint16_t aes_128_gcm = 0x1301, aes_256_gcm = 0x1302, chacha20_poly1305 = 0x1303;

constexpr std::string_view label_prefix = "tls13 ";
/// Of what HKDF-Expand-Label gives to HMAC, and of a block of HMAC (RFC 2104).
constexpr std::size_t most_text_bytes = 3 + label_prefix.size() + cipher_suite::most_label_bytes +
                                        1 + cipher_suite::most_hash_bytes + 1,
                      most_block_bytes = 128;

unsigned char* append(unsigned char* at, const void* from, std::size_t bytes) noexcept {
    if (bytes > 0) std::memcpy(at, from, bytes);
    return at + bytes;
}

}  // namespace

bool traffic_secret::read_hex(std::string_view digits) noexcept {
    if (digits.size() % 2 != 0 || digits.size() > 2 * bytes.size()) return false;
    for (std::size_t i = 0; i < digits.size(); i += 2) {
        const int high = hex_digit(digits[i]), low = hex_digit(digits[i + 1]);
        if (high < 0 || low < 0) return false;
        bytes[i / 2] = static_cast<unsigned char>(high << 4 | low);
    }
    size = static_cast<std::uint8_t>(digits.size() / 2);
    return true;
}

void traffic_secret::erase() noexcept {
    if (size != 0) OPENSSL_cleanse(bytes.data(), bytes.size());
    size = 0;
}

cipher_suite::cipher_suite(const char* cipher_name, const char* digest_name, std::uint8_t key,
                           std::uint8_t digest, std::uint8_t block) noexcept
    : cipher(EVP_CIPHER_fetch(nullptr, cipher_name, nullptr)),
      hash(EVP_MD_fetch(nullptr, digest_name, nullptr)),
      key_bytes(key),
      hash_bytes(digest),
      block_bytes(block) {}

const cipher_suite* cipher_suite::of(const SSL_CIPHER& cipher) noexcept {
    switch (SSL_CIPHER_get_protocol_id(&cipher)) {
        case aes_128_gcm: {
            static const cipher_suite made("AES-128-GCM", "SHA256", 16, 32, 64);
            return &made;
        }
        case aes_256_gcm: {
            static const cipher_suite made("AES-256-GCM", "SHA384", 32, 48, 128);
            return &made;
        }
        case chacha20_poly1305: {
            static const cipher_suite made("ChaCha20-Poly1305", "SHA256", 32, 32, 64);
            return &made;
        }
        default:
            return nullptr;
    }
}

bool cipher_suite::digest(std::span<const unsigned char> text, unsigned char* into) const noexcept {
    unsigned bytes = 0;
    return EVP_Digest(text.data(), text.size(), into, &bytes, hash, nullptr) == 1 &&
           bytes == hash_bytes;
}

/// OpenSSL's own looks three names up at each call, which is most of its time for so little.
bool cipher_suite::hmac(secret key, std::span<const unsigned char> text,
                        unsigned char* into) const noexcept {
    unsigned char inner[most_block_bytes + most_text_bytes];
    unsigned char outer[most_block_bytes + most_hash_bytes];
    if (text.size() > most_text_bytes || key.size() > block_bytes) return false;
    std::memset(inner, 0x36, block_bytes);
    std::memset(outer, 0x5c, block_bytes);
    for (std::size_t i = 0; i < key.size(); ++i) {
        inner[i] ^= key[i];
        outer[i] ^= key[i];
    }
    (void)append(inner + block_bytes, text.data(), text.size());
    const bool done = digest({inner, block_bytes + text.size()}, outer + block_bytes) &&
                      digest({outer, std::size_t{block_bytes} + hash_bytes}, into);
    OPENSSL_cleanse(inner, sizeof inner);
    OPENSSL_cleanse(outer, sizeof outer);
    return done;
}

bool cipher_suite::expand(secret from, std::string_view label, secret context,
                          std::span<unsigned char> into) const noexcept {
    if (label.size() > most_label_bytes || context.size() > most_hash_bytes ||
        into.size() > hash_bytes)
        return false;
    unsigned char text[most_text_bytes] = {
        0, static_cast<unsigned char>(into.size()),
        static_cast<unsigned char>(label_prefix.size() + label.size())};
    unsigned char* at = append(text + 3, label_prefix.data(), label_prefix.size());
    at = append(at, label.data(), label.size());
    *at++ = static_cast<unsigned char>(context.size());
    at = append(at, context.data(), context.size());
    *at++ = 1;  // The first block of HKDF.
    unsigned char all[most_hash_bytes];
    const bool done = hmac(from, {text, static_cast<std::size_t>(at - text)}, all);
    if (done) std::memcpy(into.data(), all, into.size());
    OPENSSL_cleanse(all, sizeof all);
    return done;
}

bool cipher_suite::master_of(secret handshake, unsigned char* into) const noexcept {
    constexpr unsigned char zeros[most_hash_bytes] = {};
    unsigned char of_nothing[most_hash_bytes], derived[most_hash_bytes];
    const bool done =
        digest({}, of_nothing) &&
        expand(handshake, "derived", {of_nothing, hash_bytes}, {derived, hash_bytes}) &&
        hmac({derived, hash_bytes}, {zeros, hash_bytes}, into);
    OPENSSL_cleanse(derived, sizeof derived);
    return done;
}

bool cipher_suite::export_key(const traffic_secret& exporter, std::string_view label,
                              const_bytes context, mutable_bytes into) const noexcept {
    unsigned char of_nothing[most_hash_bytes], of_context[most_hash_bytes],
        derived[most_hash_bytes];
    const std::span text(reinterpret_cast<const unsigned char*>(context.data()), context.size());
    const bool done =
        digest({}, of_nothing) && digest(text, of_context) &&
        expand(exporter.value(), label, {of_nothing, hash_bytes}, {derived, hash_bytes}) &&
        expand({derived, hash_bytes}, "exporter", {of_context, hash_bytes},
               {reinterpret_cast<unsigned char*>(into.data()), into.size()});
    OPENSSL_cleanse(derived, sizeof derived);
    return done;
}

}  // namespace amalgam::detail
