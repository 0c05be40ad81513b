#pragma once

#include <amalgam/core/detail/memory.hpp>

#include "fabric/trust/loaded_credentials.hpp"
#include "fabric/trust/openssl.hpp"

namespace amalgam::detail {

/// Makes the context require a certificate of every peer, verified by these credentials, which it
/// shares from then on. Failure: throws std::bad_alloc.
void verify_peers_by(SSL_CTX& context, std::shared_ptr<const loaded_credentials> by,
                     bool accepting);

}  // namespace amalgam::detail
