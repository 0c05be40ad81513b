#include "fabric/trust/tls/tls_contexts.hpp"

#include <array>
#include <cstring>
#include <new>
#include <utility>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <openssl/err.h>

#include <amalgam/core/detail/printable.hpp>

#include "fabric/limits.hpp"
#include "fabric/trust/credentials/credential_store.hpp"
#include "fabric/trust/tls/pre_shared_proof.hpp"
#include "fabric/trust/tls/verification.hpp"

namespace amalgam::detail {
namespace {

/// As it travels: names, each behind its length.
constexpr std::array<unsigned char, tls_protocol.size() + 1> offered = [] {
    std::array<unsigned char, tls_protocol.size() + 1> bytes{tls_protocol.size()};
    for (std::size_t i = 0; i < tls_protocol.size(); ++i)
        bytes[i + 1] = static_cast<unsigned char>(tls_protocol[i]);
    return bytes;
}();

int choose_protocol(SSL*, const unsigned char** chosen, unsigned char* size,
                    const unsigned char* from, unsigned from_bytes, void*) {
    unsigned char* found = nullptr;
    if (SSL_select_next_proto(&found, size, offered.data(), offered.size(), from, from_bytes) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *chosen = found;
    return SSL_TLSEXT_ERR_OK;
}

/// choose_protocol() is not asked about a peer that names none at all.
int require_protocol(SSL* ssl, int* alert, void*) {
    const unsigned char* names = nullptr;
    std::size_t size = 0;
    if (SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_application_layer_protocol_negotiation, &names,
                                  &size) == 1)
        return SSL_CLIENT_HELLO_SUCCESS;
    *alert = SSL_AD_NO_APPLICATION_PROTOCOL;
    return SSL_CLIENT_HELLO_ERROR;
}

ssl_context_ptr make_context(const std::shared_ptr<const credentials>& of,
                             const std::shared_ptr<const loaded_credentials>& now, bool accepting) {
    ssl_context_ptr made(SSL_CTX_new(accepting ? TLS_server_method() : TLS_client_method()));
    if (made == nullptr) throw std::bad_alloc();
    SSL_CTX& context = *made;
    if (!now->put_into(context)) throw std::bad_alloc();  // It could, when it was loaded.
    verify_peers_by(context, of, now, accepting);
    const bool by_shared_key = now->shared() != nullptr;
    const bool set =
        SSL_CTX_set_min_proto_version(&context, TLS1_3_VERSION) == 1 &&
        SSL_CTX_set_max_proto_version(&context, TLS1_3_VERSION) == 1 &&
        // AES-128 first: the fastest where the processor has it, and none is weak.
        SSL_CTX_set_ciphersuites(&context, by_shared_key ? pre_shared_ciphers
                                                         : "TLS_AES_128_GCM_SHA256:"
                                                           "TLS_AES_256_GCM_SHA384:"
                                                           "TLS_CHACHA20_POLY1305_SHA256") == 1;
    if (!set) throw std::bad_alloc();
    SSL_CTX_set_options(&context, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_mode(&context, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_max_cert_list(&context, limits::max_chain_bytes);
    SSL_CTX_set_max_early_data(&context, 0);
    SSL_CTX_set_recv_max_early_data(&context, 0);
    if (accepting) {
        SSL_CTX_set_alpn_select_cb(&context, &choose_protocol, nullptr);
        SSL_CTX_set_client_hello_cb(&context, &require_protocol, nullptr);
        // Sessions are kept here, and tickets only name them: one that held the session would be
        // encrypted and decrypted, and the certificate in it decoded again, for each resumption.
        SSL_CTX_set_options(&context, SSL_OP_NO_TICKET);
        // A handshake by a pre-shared key is no longer than one that resumes another.
        SSL_CTX_set_session_cache_mode(&context,
                                       by_shared_key ? SSL_SESS_CACHE_OFF : SSL_SESS_CACHE_SERVER);
        SSL_CTX_sess_set_cache_size(&context, tls_contexts::max_sessions);
        SSL_CTX_set_num_tickets(&context, by_shared_key ? 0 : 1);
        if (SSL_CTX_set_session_id_context(&context, offered.data(), offered.size()) != 1)
            throw std::bad_alloc();
    } else {
        if (SSL_CTX_set_alpn_protos(&context, offered.data(), offered.size()) != 0)
            throw std::bad_alloc();
        // Callers keep sessions per address, see set_up.
        SSL_CTX_set_session_cache_mode(&context,
                                       SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    }
    return made;
}

/// An address without brackets and zone; false for a name.
bool is_address(const std::string& host) {
    in6_addr bytes{};
    return ::inet_pton(AF_INET, host.c_str(), &bytes) == 1 ||
           ::inet_pton(AF_INET6, host.c_str(), &bytes) == 1;
}

/// What the alert of a peer that refuses our certificate says, but for want of trust; null for
/// other alerts.
const char* refusal_in_alert(int reason) {
    switch (reason) {
        case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
            return "our certificate has expired";
        case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
            return "our certificate is revoked";
        case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
            return "we showed no certificate";
        case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
        case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
        case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
        case SSL_R_TLSV1_ALERT_ACCESS_DENIED:
        case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
            return "our certificate does not satisfy it";
        case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
            return "it has nothing in common with us; perhaps it has a pre-shared key, where we "
                   "have a certificate";
        default:
            return nullptr;
    }
}

/// What other ends of a handshake mean.
const char* meaning_of(int reason) {
    switch (reason) {
        case SSL_R_WRONG_VERSION_NUMBER:
        case SSL_R_HTTP_REQUEST:
        case SSL_R_HTTPS_PROXY_REQUEST:
            return "the peer does not speak TLS";
        case SSL_R_UNSUPPORTED_PROTOCOL:
        case SSL_R_VERSION_TOO_LOW:
        case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
            return "the two sides have no version of TLS in "
                   "common, expected TLS 1.3";
        case SSL_R_NO_APPLICATION_PROTOCOL:
        case SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL:
        case SSL_R_CALLBACK_FAILED:
            return "the peer does not speak Amalgam's protocol over TLS";
        case SSL_R_NO_SHARED_CIPHER:
            return "the two sides have no cipher in common";
        default:
            return nullptr;
    }
}

}  // namespace

tls_contexts::tls_contexts(std::shared_ptr<const credentials> of, set_up_function set_up)
    : of_(std::move(of)), set_up_(set_up) {
    (void)of_->store().current();  // From here on a thread looks at the files.
}
tls_contexts::~tls_contexts() = default;

/// Makes both contexts again if the credentials have changed.
result<void> tls_contexts::follow() try {
    auto now = of_->store().current();
    if (now == made_from_) return {};
    (void)openssl_lacked_memory();
    ssl_context_ptr connecting = make_context(of_, now, false);
    ssl_context_ptr accepting = make_context(of_, now, true);
    if (set_up_ != nullptr) {
        set_up_(*connecting);
        set_up_(*accepting);
    }
    // One may lack what OpenSSL found no room for, such as a kind of signature, without a word.
    if (openssl_lacked_memory()) throw std::bad_alloc();
    connecting_ = std::move(connecting);
    accepting_ = std::move(accepting);
    made_from_ = std::move(now);
    return {};
} catch (const std::bad_alloc&) {
    clear_openssl_errors();
    return {errc::no_memory, {}};
}

result<SSL_CTX*> tls_contexts::connecting() {
    if (const auto done = follow(); !done) return done.why();
    return connecting_.get();
}

result<SSL_CTX*> tls_contexts::accepting() {
    if (const auto done = follow(); !done) return done.why();
    return accepting_.get();
}

result<void> expect_host(SSL* ssl, const std::string& host) {
    const std::string bare = host.substr(0, host.find('%'));
    const bool set = is_address(bare)
                         ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), bare.c_str()) == 1
                         : !host.empty() && SSL_set1_host(ssl, host.c_str()) == 1 &&
                               SSL_set_tlsext_host_name(ssl, host.c_str()) == 1;
    if (set) return {};
    clear_openssl_errors();
    return {errc::invalid,
            fmt::format("\"{}\" is neither a host's name nor an address; example: node7.lab",
                        printable_name(host))};
}

namespace {

result<void> check_protocol(const SSL* ssl) {
    const unsigned char* chosen = nullptr;
    unsigned size = 0;
    SSL_get0_alpn_selected(ssl, &chosen, &size);
    if (std::string_view(reinterpret_cast<const char*>(chosen), size) == tls_protocol) return {};
    return {errc::denied, "the peer does not speak Amalgam's protocol over TLS"};
}

}  // namespace

result<identity> verified_peer(const SSL* ssl) {
    if (uses_pre_shared_keys(ssl)) {
        auto who = proved_by_pre_shared_key(ssl);
        if (!who) return who;
        if (const auto same = check_protocol(ssl); !same) return same.why();
        if (auto still = check_changes(ssl); !still) return still.why();
        return who;
    }
    const long verified = SSL_get_verify_result(ssl);
    X509* const shown = SSL_get0_peer_certificate(ssl);
    if (shown == nullptr || verified != X509_V_OK)
        return {errc::denied,
                fmt::format("the peer did not prove who it is: {}",
                            shown == nullptr ? "it showed no certificate"
                                             : X509_verify_cert_error_string(verified))};
    if (const auto same = check_protocol(ssl); !same) return same.why();
    if (auto still = check_changes(ssl); !still) return still.why();
    if (auto stands = check_session(ssl); !stands) return stands.why();
    // OpenSSL does not look at it where a session is resumed.
    if (const auto valid = check_time(*shown, std::chrono::system_clock::now()); !valid)
        return {errc::denied, fmt::format("the peer's certificate {}", valid.sentence())};
    return identity_by(ssl, *shown);
}

failure handshake_failure(const SSL* ssl) {
    const unsigned long code = ERR_peek_last_error();
    const int reason = ERR_GET_LIB(code) == ERR_LIB_SSL ? ERR_GET_REASON(code) : 0;
    const std::string otherwise = take_openssl_error();
    if (uses_pre_shared_keys(ssl))
        if (std::string why = pre_shared_refusal(ssl, reason); !why.empty())
            return {{errc::denied}, std::move(why)};
    if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED)
        return {{errc::denied},
                fmt::format("the peer's certificate is refused: {}", refusal_of_peer(ssl))};
    if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE)
        return {{errc::denied}, "the peer showed no certificate"};
    if (reason == SSL_R_TLSV1_ALERT_UNKNOWN_CA)
        return {{errc::denied}, fmt::format("the peer refuses us: {}", distrust_of_peer(ssl))};
    if (const char* refused = refusal_in_alert(reason))
        return {{errc::denied}, fmt::format("the peer refuses us: {}", refused)};
    if (const char* meaning = meaning_of(reason)) return {{errc::unreachable}, meaning};
    return {{errc::unreachable},
            code == 0 ? std::string("the peer ended the connection in the middle of the handshake")
                      : fmt::format("the TLS handshake failed: {}", otherwise)};
}

}  // namespace amalgam::detail
