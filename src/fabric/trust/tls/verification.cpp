#include "fabric/trust/tls/verification.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <new>
#include <utility>

#include "fabric/trust/keys/certificate.hpp"
#include "fabric/trust/tls/pre_shared_proof.hpp"

namespace amalgam::detail {
namespace {

using shared_credentials = std::shared_ptr<const loaded_credentials>;

void free_shared(void*, void* kept, CRYPTO_EX_DATA*, int, long, void*) {
    delete static_cast<shared_credentials*>(kept);
}

int kept_index() {
    static const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, &free_shared);
    return index;
}

/// Where OpenSSL looks for a peer's authority, expiry, purpose and host.
void verify_by_authority(SSL_CTX& context, const loaded_credentials& by, bool accepting) {
    X509_VERIFY_PARAM* const how = SSL_CTX_get0_param(&context);
    X509_VERIFY_PARAM_set_purpose(how,
                                  accepting ? X509_PURPOSE_SSL_CLIENT : X509_PURPOSE_SSL_SERVER);
    // A common name says who somebody is, not which host.
    X509_VERIFY_PARAM_set_hostflags(
        how, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if (by.has_revocation_lists())
        X509_VERIFY_PARAM_set_flags(how, X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL);
}

int refuse(X509_STORE_CTX* at, int why) {
    X509_STORE_CTX_set_error(at, why);
    return 0;
}

/// In place of OpenSSL's verification: the key is one of those trusted, and its certificate valid
/// now and for this purpose. That the peer has the private key, the handshake proves.
int is_trusted_key(X509_STORE_CTX* at, void* credentials_of_context) {
    const auto& by = *static_cast<const loaded_credentials*>(credentials_of_context);
    X509* const shown = X509_STORE_CTX_get0_cert(at);
    if (shown == nullptr || X509_get0_pubkey(shown) == nullptr)
        return refuse(at, X509_V_ERR_UNABLE_TO_DECODE_ISSUER_PUBLIC_KEY);
    const auto trusted = by.trusted_keys();
    if (std::find(trusted.begin(), trusted.end(), fingerprint_of(*shown)) == trusted.end())
        return refuse(at, X509_V_ERR_CERT_UNTRUSTED);
    // 0: it is no time.
    if (X509_cmp_current_time(X509_get0_notBefore(shown)) >= 0)
        return refuse(at, X509_V_ERR_CERT_NOT_YET_VALID);
    if (X509_cmp_current_time(X509_get0_notAfter(shown)) <= 0)
        return refuse(at, X509_V_ERR_CERT_HAS_EXPIRED);
    const auto* const ssl = static_cast<const SSL*>(
        X509_STORE_CTX_get_ex_data(at, SSL_get_ex_data_X509_STORE_CTX_idx()));
    const int purpose = SSL_is_server(ssl) == 1 ? X509_PURPOSE_SSL_CLIENT : X509_PURPOSE_SSL_SERVER;
    if (X509_check_purpose(shown, purpose, 0) != 1) return refuse(at, X509_V_ERR_INVALID_PURPOSE);
    X509_STORE_CTX_set_error(at, X509_V_OK);
    return 1;
}

}  // namespace

void verify_peers_by(SSL_CTX& context, std::shared_ptr<const loaded_credentials> by,
                     bool accepting) {
    const loaded_credentials* const credentials_of_context = by.get();
    auto kept = std::make_unique<shared_credentials>(std::move(by));
    if (SSL_CTX_set_ex_data(&context, kept_index(), kept.get()) != 1) throw std::bad_alloc();
    (void)kept.release();
    if (credentials_of_context->shared() != nullptr)
        return prove_by_pre_shared_key(context, accepting);
    SSL_CTX_set_verify(&context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    verify_by_authority(context, *credentials_of_context, accepting);
    if (!credentials_of_context->trusted_keys().empty())
        SSL_CTX_set_cert_verify_callback(&context, &is_trusted_key,
                                         const_cast<loaded_credentials*>(credentials_of_context));
}

const loaded_credentials* verified_by(const SSL* ssl) noexcept {
    const auto* const by = static_cast<const shared_credentials*>(
        SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), kept_index()));
    return by == nullptr ? nullptr : by->get();
}

result<identity> identity_by(const SSL* ssl, X509& shown) {
    const loaded_credentials* const by = verified_by(ssl);
    if (by == nullptr || by->trusted_keys().empty()) return identity_of(shown);
    return identity_of_key(shown);
}

result<void> check_session(const SSL* ssl) {
    using std::chrono::system_clock;
    static const int place =
        CRYPTO_get_ex_new_index(CRYPTO_EX_INDEX_SSL_SESSION, 0, nullptr, nullptr, nullptr, nullptr);
    SSL_SESSION* const session = SSL_get_session(ssl);
    if (SSL_session_reused(ssl) == 1) {
        // OpenSSL copies it into the session of each ticket.
        const auto end = reinterpret_cast<std::intptr_t>(SSL_SESSION_get_ex_data(session, place));
        if (end == 0 || system_clock::to_time_t(system_clock::now()) < end) return {};
        return {errc::denied,
                "the peer resumed a session, and a certificate or list that it was verified by has "
                "expired since"};
    }
    const loaded_credentials* const by = verified_by(ssl);
    const wall_time first = std::min(first_end_of(SSL_get0_verified_chain(ssl)),
                                     by == nullptr ? wall_time::max() : by->lists_end());
    if (first == wall_time::max()) return {};
    const auto end = static_cast<std::intptr_t>(system_clock::to_time_t(first));
    if (SSL_SESSION_set_ex_data(session, place, reinterpret_cast<void*>(end)) == 1) return {};
    clear_openssl_errors();
    return {errc::no_memory, "there was no memory to keep until when a TLS session stands"};
}

}  // namespace amalgam::detail
