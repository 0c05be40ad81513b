#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <amalgam/core/bytes.hpp>

#include "fabric/trust/openssl/openssl.hpp"

namespace amalgam::detail {

/// One of the secrets that TLS gives a connection: of what one direction sends, or of what is
/// exported.
struct traffic_secret {
    std::array<unsigned char, 48> bytes{};
    std::uint8_t size = 0;

    traffic_secret() noexcept = default;
    traffic_secret(const traffic_secret&) = delete;
    ~traffic_secret() { erase(); }
    /// False: not hexadecimal digits, or too many.
    bool read_hex(std::string_view digits) noexcept;
    void erase() noexcept;
    std::span<const unsigned char> value() const noexcept { return {bytes.data(), size}; }
};

/// What a cipher suite is made of, and how secrets follow from each other under it (RFC 8446, 7).
/// Looked up once, as OpenSSL by itself does at each use.
struct cipher_suite {
    using secret = std::span<const unsigned char>;
    static constexpr std::size_t most_hash_bytes = 48;
    /// Of a label, without "tls13 ".
    static constexpr std::size_t most_label_bytes = 64;

    /// Null: none that is known.
    static const cipher_suite* of(const SSL_CIPHER& cipher) noexcept;

    /// HKDF-Expand-Label (7.1) of at most a digest's size. `context` is empty, or a digest.
    bool expand(secret from, std::string_view label, secret context,
                std::span<unsigned char> into) const noexcept;
    /// The master secret that follows a handshake secret (7.1), into a digest's size.
    bool master_of(secret handshake, unsigned char* into) const noexcept;
    /// What TLS exports (7.5), of at most a digest's size.
    bool export_key(const traffic_secret& exporter, std::string_view label, const_bytes context,
                    mutable_bytes into) const noexcept;

    const EVP_CIPHER* const cipher;  ///< Null: OpenSSL has none. Never freed.
    const EVP_MD* const hash;
    const std::uint8_t key_bytes, hash_bytes, block_bytes;

private:
    cipher_suite(const char* cipher_name, const char* digest_name, std::uint8_t key,
                 std::uint8_t digest, std::uint8_t block) noexcept;
    bool hmac(secret key, std::span<const unsigned char> text, unsigned char* into) const noexcept;
    bool digest(std::span<const unsigned char> text, unsigned char* into) const noexcept;
};

}  // namespace amalgam::detail
