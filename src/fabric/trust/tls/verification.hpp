#pragma once

#include <amalgam/core/detail/memory.hpp>

#include "fabric/trust/credentials/loaded_credentials.hpp"
#include "fabric/trust/openssl/openssl.hpp"

namespace amalgam::detail {

/// Makes the context require a certificate of every peer, verified by these credentials, which it
/// shares from then on; or one of their pre-shared keys, see pre_shared_proof.hpp.
/// Failure: throws std::bad_alloc.
void verify_peers_by(SSL_CTX& context, std::shared_ptr<const loaded_credentials> by,
                     bool accepting);

/// What the context of this connection verifies by. Null: the context is another's.
const loaded_credentials* verified_by(const SSL* ssl) noexcept;

/// Who showed this certificate, once it was verified. Where peers are trusted for their key, nobody
/// vouches for what else it says; see identity_of_key().
result<identity> identity_by(const SSL* ssl, X509& shown);

/// A session that is resumed was verified when it began, and stands until the first of what it was
/// verified by ends: a certificate between the peer and an authority, that authority, or a list of
/// what is revoked. Notes that end, or looks at it.
/// Failure: `denied` once it has come; `no_memory`.
result<void> check_session(const SSL* ssl);

}  // namespace amalgam::detail
