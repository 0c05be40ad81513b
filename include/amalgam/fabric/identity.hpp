#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace amalgam {

/// SHA-256 of a public key (the SubjectPublicKeyInfo of a certificate, in DER). It stays the same
/// when the certificate is renewed for the same key.
struct key_fingerprint {
    std::array<std::uint8_t, 32> bytes{};  ///< The hash.
    friend auto operator<=>(const key_fingerprint&, const key_fingerprint&) = default;
};

/// 64 lower-case hexadecimal digits, as of
///     openssl x509 -in certificate.pem -pubkey -noout | openssl pkey -pubin -outform DER |
///     sha256sum
std::string to_text(const key_fingerprint& key);
/// Failure: throws error{invalid} for anything but 64 hexadecimal digits, in lower or upper case,
///          with or without a colon between bytes.
key_fingerprint parse_key_fingerprint(std::string_view text);

/// How a peer proved who it is.
enum class identity_kind : std::uint8_t {
    none,         ///< Not at all: nothing is known of it.
    certificate,  ///< By the private key of a certificate that this side trusts.
    pre_shared,   ///< By knowing a key that both sides were given.
    process       ///< By the kernel's word, on the same host.
};

/// The stable lower-case name: "certificate".
std::string_view name(identity_kind kind) noexcept;

/// Who a peer is, as far as it proved it.
///
/// Groups are the organizational units (OU) of the certificate's subject, in its order. They are
/// signed with the name, may be several, and every tool shows them; URIs in the subject alternative
/// name would need a scheme that all sites agree on.
///
/// Threads: a plain value.
struct identity {
    /// How it proved itself; says which members are set.
    identity_kind kind = identity_kind::none;
    /// certificate: the subject's common name (CN), or its first DNS name if it has none.
    /// pre_shared: the name of the key. Else empty. UTF-8 without control characters.
    std::string name{};
    std::vector<std::string> groups{};  ///< Of certificates; else empty.
    key_fingerprint key{};              ///< Of certificates; else zero.
    std::uint32_t uid = 0;              ///< Of processes; else 0, as are the next two.
    std::uint32_t gid = 0;              ///< Effective group of the process.
    std::int32_t pid = 0;               ///< Id of the process.

    friend bool operator==(const identity&, const identity&) = default;
};

/// This process, as the kernel would describe it to others on this host.
identity own_process();

/// For logs and messages, in one line: "node7 (groups: compute, admin)", "uid 1000 (pid 4711)",
/// "nobody known".
std::string to_text(const identity& who);

}  // namespace amalgam
