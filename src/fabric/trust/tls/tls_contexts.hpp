#pragma once

#include <string_view>

#include <amalgam/core/detail/memory.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/fabric/credentials.hpp>

#include "fabric/trust/openssl/openssl.hpp"

namespace amalgam::detail {

class loaded_credentials;

/// The protocol both sides must name (ALPN), as text and as it travels.
inline constexpr std::string_view tls_protocol = "amalgam/1";

/// What the TLS connections of one port are made from, always according to its credentials as they
/// are now.
///
/// Both contexts: TLS 1.3 only, no early data; the peer must show a certificate that the
/// credentials trust, for this purpose, valid now and not revoked, or prove that it has a
/// pre-shared key, if they have such; and must name `tls_protocol`. Buffers of idle connections are
/// released. Which host the peer must be is set per SSL, by expect_host(). Every context keeps
/// sessions of its own, so that nothing is resumed across ports, processes or changed credentials.
///
/// Threads: one at a time, as a port.
class tls_contexts {
public:
    /// `set_up`, if any, is called with each context that is made, before its first use: for
    /// callbacks.
    using set_up_function = void (*)(SSL_CTX&);
    /// Sessions an accepting context keeps to be resumed, the latest: 1 KiB each, and the
    /// certificate of its peer.
    static constexpr long max_sessions = 1024;

    /// Looks at the files, as credential_store::current() says; a thread does from then on.
    explicit tls_contexts(std::shared_ptr<const credentials> of, set_up_function set_up = nullptr);
    ~tls_contexts();

    /// For SSL_new(), which keeps it. The same pointer as before unless the credentials have
    /// changed; sessions of another context must not be resumed. Waits for no file system.
    /// Failure: `no_memory`.
    result<SSL_CTX*> connecting();
    result<SSL_CTX*> accepting();

private:
    result<void> follow();

    const std::shared_ptr<const credentials> of_;
    const set_up_function set_up_;
    std::shared_ptr<const loaded_credentials> made_from_;
    ssl_context_ptr connecting_;
    ssl_context_ptr accepting_;
};

/// Before the handshake of a connecting SSL: `host`, a DNS name or an IP address, must be among the
/// subject alternative names of the peer's certificate. With trusted or pre-shared keys instead of
/// an authority the key is enough, and this only sends the name. Failure: `invalid` for what is
/// neither.
result<void> expect_host(SSL* ssl, const std::string& host);

/// Who is at the other end, once the handshake is done, resumed or not.
/// Failure: `denied` if it did not prove it, is not trusted any more, its certificate has expired
///          since, or it did not name `tls_protocol`; throws std::bad_alloc.
result<identity> verified_peer(const SSL* ssl);

/// Why a handshake failed, for the log and the caller: after SSL_do_handshake() returned an error,
/// in the same thread, and before any other call of OpenSSL. Empties the thread's queue of errors.
/// `denied` if either side refused the other's certificate, else `unreachable`.
failure handshake_failure(const SSL* ssl);

}  // namespace amalgam::detail
