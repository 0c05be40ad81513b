#pragma once

#include <cstddef>
#include <vector>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/fabric/identity.hpp>

#include "fabric/trust/credentials/loaded_credentials.hpp"
#include "fabric/trust/keys/certificate.hpp"
#include "fabric/trust/openssl/openssl.hpp"

namespace amalgam::detail {

// Statements signed by the key of a certificate, for what no TLS connection carries: datagrams.
// Signed is a context before the statement, so that no signature of one use, or of TLS, serves
// another.

/// The certificate itself in DER, without those that lead to its authority.
std::vector<std::byte> certificate_bytes(const loaded_credentials& of);

/// Length of the longest signature.
std::size_t max_signature_bytes(const loaded_credentials& by);

/// Failure: throws std::bad_alloc.
std::vector<std::byte> sign(const loaded_credentials& by, std::string_view context,
                            const_bytes statement);

/// A certificate that was verified.
///
/// Threads: const members may run concurrently.
class verified_signer {
public:
    /// The certificate, in DER, is one that `by` trusts: its authority, or its key, as for a
    /// connection that a peer opens. Chains are not sent, so its authority must have signed it
    /// directly.
    /// Failure: `denied`.
    static result<verified_signer> of(const loaded_credentials& by, const_bytes certificate);

    const identity& who() const noexcept { return who_; }
    wall_time expires() const noexcept { return expires_; }
    /// Whether its key signed that statement in that context.
    bool signed_by(std::string_view context, const_bytes statement, const_bytes signature) const;

private:
    verified_signer() = default;
    identity who_;
    wall_time expires_{};
    x509_ptr certificate_;
};

}  // namespace amalgam::detail
