#pragma once

#include <string>

#include <amalgam/core/result.hpp>
#include <amalgam/fabric/identity.hpp>

#include "fabric/trust/keys/pre_shared_keys.hpp"
#include "fabric/trust/openssl/openssl.hpp"

namespace amalgam::detail {

// How two ends of a TLS 1.3 connection prove that they have the same pre-shared key (RFC 8446,
// 4.2.11), always together with a key exchange, so that whoever gets the key later decrypts nothing
// of what was recorded. The name of the key is sent before anything is encrypted.

/// What a pre-shared key of ours can be used with: its hash is SHA-256.
inline constexpr const char* pre_shared_ciphers =
    "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";

/// Makes the context, of which verify_peers_by() keeps the credentials, offer their own key, or
/// accept any of theirs; certificates are refused.
void prove_by_pre_shared_key(SSL_CTX& context, bool accepting);

bool uses_pre_shared_keys(const SSL* ssl) noexcept;

/// Who is at the other end, once the handshake is done: the name of the key.
/// Failure: `denied` if it did not prove it.
result<identity> proved_by_pre_shared_key(const SSL* ssl);

/// Whether the key that both ends have used is among these, too, which have come since.
/// Failure: `denied`.
result<void> check_pre_shared_key(const SSL* ssl, const pre_shared_keys& now);

/// Overwrites what the connection has of its key. Once the handshake is done, or has failed.
void forget_pre_shared_key(SSL* ssl) noexcept;

/// Why a handshake failed, as OpenSSL's reason and what the peer offered say. Empty: for another
/// reason.
std::string pre_shared_refusal(const SSL* ssl, int reason);

}  // namespace amalgam::detail
