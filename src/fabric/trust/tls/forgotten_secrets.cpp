#include "fabric/trust/tls/forgotten_secrets.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#include <malloc.h>
#include <openssl/crypto.h>

namespace amalgam::detail {
namespace {

using bytes_of_object = std::span<unsigned char>;

/// Empty where it is not known.
bytes_of_object memory_of(void* object) noexcept {
    if (object == nullptr || !openssl_allocates_by_malloc()) return {};
    return {static_cast<unsigned char*>(object), ::malloc_usable_size(object)};
}

/// In the SSL of OpenSSL 3 these stand before the secret of what the client sends, each with room
/// for the longest digest. As nobody promises that, they are believed only once that secret was
/// derived from them.
constexpr std::ptrdiff_t secret_slot = EVP_MAX_MD_SIZE;
constexpr std::ptrdiff_t handshake_before = 7 * secret_slot, master_before = 6 * secret_slot,
                         transcript_before = 2 * secret_slot;

void forget_sources_of(bytes_of_object::iterator of_client, const cipher_suite& by,
                       const traffic_secret& told) noexcept {
    const auto at = [&](std::ptrdiff_t before) {
        return std::span<unsigned char>(&*(of_client - before), by.hash_bytes);
    };
    std::array<unsigned char, cipher_suite::most_hash_bytes> made{};
    const std::span digest(made.data(), by.hash_bytes);
    const bool is_master =
        by.expand(at(master_before), "c ap traffic", at(transcript_before), digest) &&
        std::ranges::equal(digest, told.value());
    const bool is_handshake = is_master && by.master_of(at(handshake_before), made.data()) &&
                              std::ranges::equal(digest, at(master_before));
    if (is_master) OPENSSL_cleanse(at(master_before).data(), secret_slot);
    if (is_handshake) OPENSSL_cleanse(at(handshake_before).data(), secret_slot);
    OPENSSL_cleanse(made.data(), made.size());
}

}  // namespace

void forget_within(void* object, std::span<const unsigned char> secret) noexcept {
    if (secret.empty()) return;
    const bytes_of_object whole = memory_of(object);
    auto at = whole.begin();
    while ((at = std::search(at, whole.end(), secret.begin(), secret.end())) != whole.end())
        OPENSSL_cleanse(&*at, secret.size());
}

void forget_traffic_secrets(SSL* ssl, const cipher_suite& by, const told_secrets& told) noexcept {
    const bytes_of_object whole = memory_of(ssl);
    const auto known = told.of_client.value();
    const auto at = std::search(whole.begin(), whole.end(), known.begin(), known.end());
    if (at != whole.end() && at - whole.begin() >= handshake_before)
        forget_sources_of(at, by, told.of_client);
    for (const traffic_secret* each : {&told.of_client, &told.of_server, &told.exporter})
        forget_within(ssl, each->value());
}

}  // namespace amalgam::detail
