#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <amalgam/fabric/key_folder.hpp>

#include "fabric/trust/keys/certificate.hpp"
#include "fabric/trust/openssl/openssl.hpp"

namespace amalgam::detail {

/// Whom a certificate names, or a request asks for.
struct certified_names {
    std::string name;
    std::vector<std::string> hosts;
    std::vector<std::string> groups;
};

/// Failure: throws error{invalid}, naming what cannot be certified.
void check_names(const certified_names& names);

// All throw error{unsupported} where this OpenSSL refuses, for example for an algorithm.

pkey_ptr generate_key(key_algorithm algorithm);

x509_request_ptr make_request(const certified_names& names, EVP_PKEY& key);
/// What it asks for. Failure: throws error{invalid} if it is not signed by its own key, or asks for
/// what cannot be certified; `called` is its name in sentences.
certified_names names_in(X509_REQ& request, const std::string& called);

/// From now, with some time before for clocks that differ, until `end`.
x509_ptr make_authority(const std::string& name, EVP_PKEY& key, wall_time end);
x509_ptr make_certificate(const certified_names& names, EVP_PKEY& key_of_owner, wall_time end,
                          X509& authority, EVP_PKEY& authority_key);
/// Signed by the key that it is for, and no authority: for who is trusted for that key.
x509_ptr make_self_signed(const certified_names& names, EVP_PKEY& key, wall_time end);

// Revocation lists are of the authority whose key signed them: two may have the same name.

bool is_list_of(X509_CRL& list, X509& authority);
/// Whether the list says so of itself, by a name and, if it has one, the identifier of a key: where
/// it does not, OpenSSL does not take it for that authority's. Proves nothing.
bool says_it_is_of(const X509_CRL& list, const X509& authority);

/// Each new list of an authority has a higher one; 0 for a list without a number.
std::uint64_t number_of(const X509_CRL& list);
/// Of two lists of one authority: by their numbers, then by their times.
bool is_older(const X509_CRL& list, const X509_CRL& than);
/// Something that `before` revokes, and `list`, of the same number, does not: its serial number.
/// Then somebody has copied the authority, both go on, and neither list follows the other. Empty
/// without such, and where numbers say nothing.
std::string taken_back_by(X509_CRL& list, X509_CRL& before);
/// "number 3 of 2027-01-31 12:00:00 UTC".
std::string number_in_words(const X509_CRL& list);
/// A list with what `before` has, if any, and `add`, if any; in force as long as the authority. Its
/// number is one more than that before, else `first`.
x509_crl_ptr make_list(X509_CRL* before, const ASN1_INTEGER* add, X509& authority,
                       EVP_PKEY& authority_key, std::uint64_t first = 1);

}  // namespace amalgam::detail
