#pragma once

#include <string>

#include <amalgam/core/detail/memory.hpp>
#include <amalgam/fabric/credentials.hpp>

#include "fabric/trust/credentials/loaded_credentials.hpp"
#include "fabric/trust/openssl/openssl.hpp"

namespace amalgam::detail {

/// Makes the context require a certificate of every peer, verified by these credentials, which it
/// shares from then on; or one of their pre-shared keys, see pre_shared_proof.hpp. `by` is what
/// `of` had when the context was made.
/// Failure: throws std::bad_alloc.
void verify_peers_by(SSL_CTX& context, std::shared_ptr<const credentials> of,
                     std::shared_ptr<const loaded_credentials> by, bool accepting);

/// What the context of this connection verifies by. Null: the context is another's.
const loaded_credentials* verified_by(const SSL* ssl) noexcept;

/// Of a handshake in which the peer's certificate was refused: why, as a part of a sentence.
std::string refusal_of_peer(const SSL* ssl);
/// Of one in which the peer does not trust us (unknown_ca): whom it would have to, in the same way.
std::string distrust_of_peer(const SSL* ssl);

/// Who showed this certificate, once it was verified. Where peers are trusted for their key, nobody
/// vouches for what else it says; see identity_of_key().
result<identity> identity_by(const SSL* ssl, X509& shown);

/// Once the handshake is done: whether the peer is trusted, too, by what the credentials have
/// become since it began. A peer may take its time over a handshake, and so would wait for a list
/// that revokes it.
/// Failure: `denied`; throws std::bad_alloc.
result<void> check_changes(const SSL* ssl);

/// A session that is resumed was verified when it began, and stands until the first of what it was
/// verified by ends: a certificate between the peer and an authority, that authority, or a list of
/// what is revoked. Notes that end, or looks at it.
/// Failure: `denied` once it has come; `no_memory`.
result<void> check_session(const SSL* ssl);

}  // namespace amalgam::detail
