#include "fabric/trust/tls/verification.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <new>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "fabric/trust/credentials/credential_store.hpp"
#include "fabric/trust/keys/certificate.hpp"
#include "fabric/trust/tls/pre_shared_proof.hpp"

namespace amalgam::detail {
namespace {

/// What a context verifies by.
struct verifier {
    std::shared_ptr<const credentials> of;
    std::shared_ptr<const loaded_credentials> by;  ///< As they were when the context was made.
};

void free_verifier(void*, void* kept, CRYPTO_EX_DATA*, int, long, void*) {
    delete static_cast<verifier*>(kept);
}

int kept_index() {
    static const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, &free_verifier);
    return index;
}

const verifier* verifier_of(const SSL* ssl) noexcept {
    return static_cast<const verifier*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), kept_index()));
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

/// As OpenSSL without any authority would refuse it: so the peer gets the alert for want of trust.
/// Keeps the certificate for refusal_of_peer(), which OpenSSL does not before it is verified.
int refuse_key(X509_STORE_CTX* at, X509* shown) {
    STACK_OF(X509)* const chain = sk_X509_new_null();
    if (sk_X509_push(chain, shown) > 0) X509_up_ref(shown);
    X509_STORE_CTX_set0_verified_chain(at, chain);
    return refuse(at, is_self_signed(*shown) ? X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT
                                             : X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY);
}

/// In place of OpenSSL's verification: the key is one of those trusted, and its certificate valid
/// now and for this purpose. That the peer has the private key, the handshake proves.
int is_trusted_key(X509_STORE_CTX* at, void* credentials_of_context) {
    const auto& by = *static_cast<const loaded_credentials*>(credentials_of_context);
    X509* const shown = X509_STORE_CTX_get0_cert(at);
    if (shown == nullptr || X509_get0_pubkey(shown) == nullptr)
        return refuse(at, X509_V_ERR_UNABLE_TO_DECODE_ISSUER_PUBLIC_KEY);
    if (!by.trusts(fingerprint_of(*shown))) return refuse_key(at, shown);
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

/// Whether the key that was trusted within the handshake is among those of other credentials.
result<void> find_key_again(const SSL* ssl, const loaded_credentials& by) {
    X509* const shown = SSL_get0_peer_certificate(ssl);
    if (shown != nullptr && by.trusts(fingerprint_of(*shown))) return {};
    return {errc::denied, "the peer's certificate is refused: its key is no longer trusted"};
}

/// As OpenSSL verified the peer within the handshake, by other credentials.
result<void> verify_again(const SSL* ssl, const loaded_credentials& by) {
    const no_errors_left clean;
    const openssl_ptr<X509_STORE_CTX> at(X509_STORE_CTX_new());
    if (at == nullptr || X509_STORE_CTX_init(at.get(), &by.store(), SSL_get0_peer_certificate(ssl),
                                             SSL_get_peer_cert_chain(ssl)) != 1)
        throw std::bad_alloc();
    X509_VERIFY_PARAM* const how = X509_STORE_CTX_get0_param(at.get());
    X509_VERIFY_PARAM_set_auth_level(how, SSL_get_security_level(ssl));
    // For which purpose, and which host.
    if (X509_VERIFY_PARAM_set1(how, SSL_get0_param(const_cast<SSL*>(ssl))) != 1)
        throw std::bad_alloc();
    if (by.has_revocation_lists())
        X509_STORE_CTX_set_flags(at.get(), X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL);
    if (X509_verify_cert(at.get()) == 1) return {};
    return {errc::denied,
            fmt::format("the peer's certificate is refused: {}",
                        X509_verify_cert_error_string(X509_STORE_CTX_get_error(at.get())))};
}

}  // namespace

void verify_peers_by(SSL_CTX& context, std::shared_ptr<const credentials> of,
                     std::shared_ptr<const loaded_credentials> by, bool accepting) {
    const loaded_credentials* const credentials_of_context = by.get();
    auto kept = std::make_unique<verifier>(verifier{std::move(of), std::move(by)});
    if (SSL_CTX_set_ex_data(&context, kept_index(), kept.get()) != 1) throw std::bad_alloc();
    (void)kept.release();
    if (credentials_of_context->shared() != nullptr)
        return prove_by_pre_shared_key(context, accepting);
    SSL_CTX_set_verify(&context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    verify_by_authority(context, *credentials_of_context, accepting);
    if (credentials_of_context->trusts_by_key())
        SSL_CTX_set_cert_verify_callback(&context, &is_trusted_key,
                                         const_cast<loaded_credentials*>(credentials_of_context));
}

const loaded_credentials* verified_by(const SSL* ssl) noexcept {
    const verifier* const kept = verifier_of(ssl);
    return kept == nullptr ? nullptr : kept->by.get();
}

result<void> check_changes(const SSL* ssl) {
    const verifier* const kept = verifier_of(ssl);
    if (kept == nullptr) return {};
    const auto now = kept->of->store().current();
    if (now == kept->by) return {};
    if (now->shared() != nullptr) return check_pre_shared_key(ssl, *now->shared());
    return now->trusts_by_key() ? find_key_again(ssl, *now) : verify_again(ssl, *now);
}

std::string refusal_of_peer(const SSL* ssl) {
    const auto why = static_cast<int>(SSL_get_verify_result(ssl));
    const loaded_credentials* const by = verified_by(ssl);
    X509* const shown = sk_X509_value(SSL_get0_verified_chain(ssl), 0);
    const bool signed_itself = why == X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT;
    const bool signed_by_another = why == X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY;
    if (by == nullptr || shown == nullptr || !(signed_itself || signed_by_another))
        return X509_verify_cert_error_string(why);
    const std::string key = to_text(fingerprint_of(*shown));
    if (by->trusts_by_key())
        return fmt::format(
            "its key is not among the trusted ones{}; where it should be: amalgam "
            "key trust FOLDER {}",
            signed_by_another ? ", and who certified it is not asked here" : "", key);
    if (!signed_itself) return X509_verify_cert_error_string(why);
    return fmt::format(
        "it is self-signed, and here is trusted who an authority certified; certify "
        "it: amalgam key new NAME --with AUTHORITY; or trust its key in a folder "
        "without authorities: amalgam key trust FOLDER {}",
        key);
}

std::string distrust_of_peer(const SSL* ssl) {
    const loaded_credentials* const own = verified_by(ssl);
    if (own == nullptr || own->shared() != nullptr) return "it does not trust our authority";
    const std::string key = to_text(own->self().key);
    if (is_self_signed(own->certificate()))
        return fmt::format(
            "our key, which is self-signed, is not among those that it trusts; "
            "where it should be: amalgam key trust FOLDER {}",
            key);
    return fmt::format(
        "it trusts neither our authority nor our key; where it should: amalgam key "
        "trust FOLDER AUTHORITY, or, if it trusts keys, amalgam key trust FOLDER {}",
        key);
}

result<identity> identity_by(const SSL* ssl, X509& shown) {
    const loaded_credentials* const by = verified_by(ssl);
    if (by == nullptr || !by->trusts_by_key()) return identity_of(shown);
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
