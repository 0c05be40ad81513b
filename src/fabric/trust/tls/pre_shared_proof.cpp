#include "fabric/trust/tls/pre_shared_proof.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <span>
#include <string_view>

#include <fmt/format.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "fabric/trust/tls/forgotten_secrets.hpp"
#include "fabric/trust/tls/verification.hpp"

namespace amalgam::detail {
namespace {

/// The key that a peer named.
struct offer {
    std::string name;
    bool is_known = false;
};

void free_offer(void*, void* kept, CRYPTO_EX_DATA*, int, long, void*) {
    delete static_cast<offer*>(kept);
}

int offer_index() {
    static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, &free_offer);
    return index;
}

const offer* offer_of(const SSL* ssl) noexcept {
    return static_cast<const offer*>(SSL_get_ex_data(ssl, offer_index()));
}

/// False: out of memory.
bool keep_offer(SSL* ssl, std::string_view name, bool is_known) noexcept try {
    if (auto* const before = static_cast<offer*>(SSL_get_ex_data(ssl, offer_index()))) {
        *before = {std::string(name), is_known};
        return true;
    }
    auto kept = std::make_unique<offer>(offer{std::string(name), is_known});
    if (SSL_set_ex_data(ssl, offer_index(), kept.get()) != 1) return false;
    (void)kept.release();
    return true;
} catch (const std::bad_alloc&) {
    return false;
}

/// As OpenSSL wants a pre-shared key. Null: out of memory.
SSL_SESSION* session_with(SSL* ssl, std::span<const unsigned char> secret) noexcept {
    constexpr unsigned char aes_128_gcm_sha256[] = {0x13, 0x01};
    openssl_ptr<SSL_SESSION> made(SSL_SESSION_new());
    const SSL_CIPHER* const cipher = SSL_CIPHER_find(ssl, aes_128_gcm_sha256);
    const bool set = made != nullptr && cipher != nullptr &&
                     SSL_SESSION_set1_master_key(made.get(), secret.data(), secret.size()) == 1 &&
                     SSL_SESSION_set_cipher(made.get(), cipher) == 1 &&
                     SSL_SESSION_set_protocol_version(made.get(), TLS1_3_VERSION) == 1;
    return set ? made.release() : nullptr;
}

/// Called by OpenSSL at the end that connects; `digest` is null, or that of the cipher that the
/// peer has chosen.
int offer_own_key(SSL* ssl, const EVP_MD* digest, const unsigned char** name, std::size_t* bytes,
                  SSL_SESSION** session) {
    *session = nullptr;
    if (digest != nullptr && EVP_MD_is_a(digest, "SHA2-256") != 1) return 1;  // Without it, then.
    const pre_shared_keys::key& own = verified_by(ssl)->shared()->own();
    *session = session_with(ssl, own.secret);
    *name = reinterpret_cast<const unsigned char*>(own.name.data());
    *bytes = own.name.size();
    return *session != nullptr ? 1 : 0;
}

/// Called by OpenSSL at the end that accepts. A name that is not known gets a key that nobody has,
/// so that the peer cannot tell it from a wrong key.
int find_key(SSL* ssl, const unsigned char* name, std::size_t bytes, SSL_SESSION** session) {
    *session = nullptr;
    const std::string_view offered(reinterpret_cast<const char*>(name), bytes);
    if (!is_key_name(offered)) return 1;  // Of a session, none of which is resumed here.
    const pre_shared_keys::key* const found = verified_by(ssl)->shared()->find(offered);
    if (!keep_offer(ssl, offered, found != nullptr)) return 0;
    std::array<unsigned char, pre_shared_keys::made_bytes> nobodys{};
    if (RAND_bytes(nobodys.data(), static_cast<int>(nobodys.size())) != 1) return 0;
    *session = session_with(ssl, found != nullptr ? found->secret : nobodys);
    return *session != nullptr ? 1 : 0;
}

/// Overwrites the first secret that TLS derives (RFC 8446, 7.1). It is made of the key alone, and
/// proves as much as the key does. OpenSSL keeps it in its SSL and session to their end, and frees
/// that of the SSL as it is.
void forget_early_secret(SSL* ssl, std::span<const unsigned char> key) noexcept {
    std::array<unsigned char, 32> early{};
    constexpr std::array<unsigned char, 32> salt{};
    unsigned bytes = early.size();
    const bool known = HMAC(EVP_sha256(), salt.data(), static_cast<int>(salt.size()), key.data(),
                            key.size(), early.data(), &bytes) != nullptr;
    for (void* const object : {static_cast<void*>(ssl), static_cast<void*>(SSL_get_session(ssl))})
        if (known) forget_within(object, early);
    OPENSSL_cleanse(early.data(), early.size());
}

/// The one of ours that both ends use. Null: the peer has named none that we know.
const pre_shared_keys::key* key_of(const SSL* ssl) noexcept {
    const pre_shared_keys& all = *verified_by(ssl)->shared();
    if (SSL_is_server(ssl) == 0) return &all.own();
    const offer* const offered = offer_of(ssl);
    return offered == nullptr ? nullptr : all.find(offered->name);
}

/// In place of OpenSSL's verification of a certificate: none is accepted.
int refuse_certificate(X509_STORE_CTX* at, void*) {
    X509_STORE_CTX_set_error(at, X509_V_ERR_CERT_UNTRUSTED);
    return 0;
}

}  // namespace

void prove_by_pre_shared_key(SSL_CTX& context, bool accepting) {
    SSL_CTX_set_verify(&context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    SSL_CTX_set_cert_verify_callback(&context, &refuse_certificate, nullptr);
    if (accepting)
        SSL_CTX_set_psk_find_session_callback(&context, &find_key);
    else
        SSL_CTX_set_psk_use_session_callback(&context, &offer_own_key);
}

bool uses_pre_shared_keys(const SSL* ssl) noexcept {
    const loaded_credentials* const by = verified_by(ssl);
    return by != nullptr && by->shared() != nullptr;
}

result<identity> proved_by_pre_shared_key(const SSL* ssl) {
    // What OpenSSL calls a session that is used again is a pre-shared key, as none is resumed.
    const bool proved = SSL_session_reused(ssl) == 1 && SSL_get0_peer_certificate(ssl) == nullptr;
    if (SSL_is_server(ssl) == 0 && proved) return verified_by(ssl)->self();
    const offer* const offered = offer_of(ssl);
    if (proved && offered != nullptr && offered->is_known)
        return identity{.kind = identity_kind::pre_shared, .name = offered->name};
    return {errc::denied, "the peer did not prove that it has a pre-shared key of ours"};
}

result<void> check_pre_shared_key(const SSL* ssl, const pre_shared_keys& now) {
    const pre_shared_keys::key* const used = key_of(ssl);
    const pre_shared_keys::key* const kept = used == nullptr           ? nullptr
                                             : SSL_is_server(ssl) == 0 ? &now.own()
                                                                       : now.find(used->name);
    if (kept != nullptr && std::ranges::equal(kept->secret, used->secret)) return {};
    return {errc::denied,
            "the pre-shared key of the peer was removed or replaced within the handshake"};
}

void forget_pre_shared_key(SSL* ssl) noexcept {
    if (!uses_pre_shared_keys(ssl)) return;
    constexpr std::array<unsigned char, pre_shared_keys::most_bytes> nothing{};
    if (SSL_SESSION* const of_key = SSL_get_session(ssl))
        (void)SSL_SESSION_set1_master_key(of_key, nothing.data(), nothing.size());
    if (const auto* const used = key_of(ssl)) forget_early_secret(ssl, used->secret);
}

std::string pre_shared_refusal(const SSL* ssl, int reason) {
    switch (reason) {
        case SSL_R_CERTIFICATE_VERIFY_FAILED:
            return "the peer has a certificate, where we have a pre-shared key; both ends need the "
                   "same kind of credentials";
        case SSL_R_BINDER_DOES_NOT_VERIFY: {
            const offer* const offered = offer_of(ssl);
            const std::string name = offered == nullptr ? std::string() : offered->name;
            if (offered != nullptr && offered->is_known)
                return fmt::format("the peer has another key by the name of {} than we have", name);
            return fmt::format("the peer has the pre-shared key {}, which we do not have", name);
        }
        case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
        case SSL_R_NO_SHARED_CIPHER:
        case SSL_R_NO_CERTIFICATE_SET:
            return "the peer offers no pre-shared key, and we have no certificate; both ends need "
                   "the same kind of credentials";
        case SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER:
        case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
        case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
        case SSL_R_TLSV1_ALERT_ACCESS_DENIED:
        case SSL_R_TLSV1_ALERT_UNKNOWN_PSK_IDENTITY:
            return fmt::format(
                "the peer refuses us: it does not have our pre-shared key {}, or "
                "has another one by that name",
                verified_by(ssl)->self().name);
        default:
            return {};
    }
}

}  // namespace amalgam::detail
