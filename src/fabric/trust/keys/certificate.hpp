#pragma once

#include <string>
#include <vector>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/fabric/identity.hpp>

#include "fabric/trust/openssl/openssl.hpp"

namespace amalgam::detail {

using wall_time = std::chrono::system_clock::time_point;

/// Who a certificate names. Proves nothing by itself.
/// Failure: `denied` without a name, for names with control characters or of more than 255 bytes,
///          and for more than 64 groups.
result<identity> identity_of(X509& certificate);
/// Who a peer is that is trusted for its key, by nobody's word but its own. Its certificate may say
/// anything: so the fingerprint is its name, and it has no groups.
identity identity_of_key(X509& certificate);

key_fingerprint fingerprint_of(EVP_PKEY& key);
/// Of the key as the certificate has it: nothing is encoded again, which takes OpenSSL 3.0 as long
/// as a key exchange. Zero for a key that OpenSSL does not know.
key_fingerprint fingerprint_of(X509& certificate);

/// By what it says, which its signature may belie.
bool is_self_signed(X509& certificate) noexcept;

/// The hosts a certificate is for: DNS names and IP addresses, as text.
std::vector<std::string> hosts_of(const GENERAL_NAMES* names);
std::vector<std::string> hosts_of(X509& certificate);

/// One line, "CN=lab, OU=x", safe for a terminal.
std::string to_line(const X509_NAME* name);
std::string serial_of(
    const ASN1_INTEGER* number);  ///< Upper-case hexadecimal, as openssl shows it.

/// The system's clock ends in 2262; later times are that.
wall_time time_of(const ASN1_TIME* time);
/// When the first of them ends.
wall_time first_end_of(const STACK_OF(X509) * certificates);
/// "2027-01-31 12:00:00 UTC".
std::string to_text(wall_time time);

/// Whether the certificate is valid at that time. Failure: `denied`, "has expired on …", "is not
/// valid before …": the sentence continues after its name.
result<void> check_time(X509& certificate, wall_time now);

}  // namespace amalgam::detail
