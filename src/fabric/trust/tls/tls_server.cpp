#include <array>
#include <cstring>
#include <new>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/status.hpp>
#include <amalgam/fabric/extension/tls_server.hpp>

#include "fabric/trust/credentials/credential_store.hpp"
#include "fabric/trust/openssl/openssl.hpp"

namespace amalgam::detail {
namespace {

/// As it travels: the name behind its length.
constexpr std::string_view http_protocol = "\x08http/1.1";

/// A client may name no protocol, or none that we know: it is told ours only if it asked for it.
int choose_http(SSL*, const unsigned char** chosen, unsigned char* size, const unsigned char* from,
                unsigned from_bytes, void*) {
    unsigned char* found = nullptr;
    const auto* const ours = reinterpret_cast<const unsigned char*>(http_protocol.data());
    if (SSL_select_next_proto(&found, size, ours, http_protocol.size(), from, from_bytes) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_NOACK;
    *chosen = found;
    return SSL_TLSEXT_ERR_OK;
}

ssl_context_ptr make_context(const loaded_credentials& of) {
    ssl_context_ptr made(SSL_CTX_new(TLS_server_method()));
    if (made == nullptr || !of.put_into(*made))
        throw error(errc::no_memory, "there is no memory for a TLS connection");
    SSL_CTX& context = *made;
    const bool set = SSL_CTX_set_min_proto_version(&context, TLS1_3_VERSION) == 1 &&
                     SSL_CTX_set_max_proto_version(&context, TLS1_3_VERSION) == 1;
    if (!set) throw error(errc::no_memory, "there is no memory for a TLS connection");
    SSL_CTX_set_options(&context, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_mode(&context, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_max_early_data(&context, 0);
    SSL_CTX_set_recv_max_early_data(&context, 0);
    SSL_CTX_set_session_cache_mode(&context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(&context, 0);
    SSL_CTX_set_alpn_select_cb(&context, &choose_http, nullptr);
    return made;
}

}  // namespace

struct tls_server_end::state {
    openssl_ptr<SSL> ssl;
    // The SSL's own.
    BIO* from_client = nullptr;
    BIO* to_client = nullptr;
};

tls_server_end::tls_server_end(std::unique_ptr<state> made) noexcept : state_(std::move(made)) {}

tls_server_end::~tls_server_end() {
    const no_errors_left clean;
    state_.reset();
}

result<void> tls_server_end::take(std::string_view received, std::string& plain,
                                  std::string& to_send) {
    const no_errors_left clean;
    SSL* const ssl = state_->ssl.get();
    clear_openssl_errors();
    // OpenSSL would read none of it, so it would be kept, however much comes.
    if ((SSL_get_shutdown(ssl) & SSL_RECEIVED_SHUTDOWN) != 0)
        return {errc::unreachable, "bytes came behind the end of a TLS connection"};
    if (BIO_write(state_->from_client, received.data(), static_cast<int>(received.size())) !=
        static_cast<int>(received.size()))
        throw std::bad_alloc();
    std::array<char, 16384> piece;
    std::size_t got = 0;
    while (SSL_read_ex(ssl, piece.data(), piece.size(), &got) == 1)
        plain.append(piece.data(), got);
    const int why = SSL_get_error(ssl, 0);
    collect(to_send);
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_ZERO_RETURN) return {};
    return {errc::unreachable, take_openssl_error()};
}

void tls_server_end::put(std::string_view plain, std::string& to_send) {
    const no_errors_left clean;
    clear_openssl_errors();
    std::size_t written = 0;
    // The BIO takes all, or there is no memory.
    if (!plain.empty() &&
        SSL_write_ex(state_->ssl.get(), plain.data(), plain.size(), &written) != 1)
        throw error(errc::unreachable, take_openssl_error());
    collect(to_send);
}

void tls_server_end::end(std::string& to_send) {
    const no_errors_left clean;
    clear_openssl_errors();
    (void)SSL_shutdown(state_->ssl.get());
    collect(to_send);
}

void tls_server_end::collect(std::string& to_send) {
    std::array<char, 16384> piece;
    for (int got = 0;
         (got = BIO_read(state_->to_client, piece.data(), static_cast<int>(piece.size()))) > 0;)
        to_send.append(piece.data(), static_cast<std::size_t>(got));
}

struct tls_server::state {
    std::shared_ptr<const credentials> of;
    std::shared_ptr<const loaded_credentials> made_from;
    ssl_context_ptr context;
    std::vector<std::string> hosts;

    void follow() {
        auto now = of->store().current();
        if (now == made_from) return;
        context = make_context(*now);
        hosts = hosts_of(now->certificate());
        made_from = std::move(now);
    }
};

tls_server::tls_server(std::shared_ptr<const credentials> of, clients which)
    : state_(std::make_unique<state>()) {
    const no_errors_left clean;
    const auto now = of->store().current();
    if (now->shared() != nullptr)
        throw error(errc::unsupported,
                    "pre-shared keys are for peers of Amalgam, which HTTP's "
                    "clients are not, expected a certificate; example: amalgam "
                    "key new node7 --p256 --host node7.lab --with lab");
    const std::string name = to_text(now->self());
    if (which == clients::browsers && EVP_PKEY_is_a(&now->key(), "ED25519") == 1)
        throw error(errc::unsupported,
                    fmt::format("the key of {} is of Ed25519, which no browser takes, expected one "
                                "of P-256; example: amalgam key new {} --p256 --host {}.lab --with "
                                "lab",
                                name, name, name));
    state_->of = std::move(of);
    state_->follow();
    if (state_->hosts.empty())
        throw error(errc::unsupported,
                    fmt::format("the certificate of {} names no host, so that no client would "
                                "believe it, expected one made with --host; example: amalgam key "
                                "new {} --p256 --host {}.lab --with lab",
                                name, name, name));
}

tls_server::~tls_server() = default;

std::unique_ptr<tls_server_end> tls_server::accept() {
    const no_errors_left clean;
    state_->follow();
    auto made = std::make_unique<tls_server_end::state>();
    made->ssl.reset(SSL_new(state_->context.get()));
    openssl_ptr<BIO> in(BIO_new(BIO_s_mem())), out(BIO_new(BIO_s_mem()));
    if (made->ssl == nullptr || in == nullptr || out == nullptr)
        throw error(errc::no_memory, "there is no memory for a TLS connection");
    made->from_client = in.get();
    made->to_client = out.get();
    SSL_set_bio(made->ssl.get(), in.release(), out.release());
    SSL_set_accept_state(made->ssl.get());
    return std::unique_ptr<tls_server_end>(new tls_server_end(std::move(made)));
}

const std::vector<std::string>& tls_server::hosts() const noexcept {
    return state_->hosts;
}

}  // namespace amalgam::detail
