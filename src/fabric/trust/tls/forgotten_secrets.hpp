#pragma once

#include <span>

#include "fabric/trust/openssl/openssl.hpp"
#include "fabric/trust/tls/key_schedule.hpp"

namespace amalgam::detail {

// OpenSSL keeps the secrets of a connection as long as its SSL, in ordinary memory, and frees them
// as they are. What it needs no more is overwritten where it stands. In a program that gives
// OpenSSL an allocator of its own nothing is.

/// Overwrites each copy of a secret within an object of OpenSSL's. Nothing in null.
void forget_within(void* object, std::span<const unsigned char> secret) noexcept;

/// What a connection was told of itself.
struct told_secrets {
    const traffic_secret& of_client;  ///< Of what the client sends.
    const traffic_secret& of_server;
    const traffic_secret& exporter;
};
/// Overwrites these in an SSL whose handshake is over and whose records are protected elsewhere,
/// and those that they follow from: the master secret, and the one of the handshake. What tickets
/// follow from stays, as more of them may come.
void forget_traffic_secrets(SSL* ssl, const cipher_suite& by, const told_secrets& told) noexcept;

}  // namespace amalgam::detail
