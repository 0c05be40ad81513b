#pragma once

#include <string>
#include <vector>

#include "fabric/trust/keys/new_file.hpp"
#include "fabric/trust/openssl/openssl.hpp"

namespace amalgam::detail {

// The files of a folder of keys; of pre-shared ones see shared_key_files.hpp. All throw
// amalgam::error.

/// Whether a user means a file, not a folder or its name: it ends in ".pem" or ".keys", or is the
/// path of one.
bool names_a_file(const std::string& file_or_folder);
/// The file that a user means: that one, or `in_folder` of the folder.
std::string key_file(const std::string& file_or_folder, const char* in_folder);
/// "." for a path without one.
std::string folder_of_file(const std::string& path);

/// Beside the revocation list of an authority, the number of its newest: where only this is left,
/// or an older list, what was revoked is not taken back.
inline constexpr const char* list_number_file = "revoked.number";

/// What signs others.
struct authority_files {
    x509_ptr certificate;
    pkey_ptr key;
    x509_crl_ptr list;  ///< Its own revocation list; null if it never had one.

    /// Failure: error{invalid} for a folder of another kind, an authority that has expired, or one
    ///          whose newest list is gone; error{denied} for a list that everybody may replace.
    static authority_files read(const std::string& folder);
};

/// Failure: throws error{invalid} if it may not sign others.
void check_authority(X509& certificate, const std::string& called);

/// May be empty.
std::vector<x509_crl_ptr> revocation_lists_of(const std::string& text, const std::string& called);

/// The new list of the authority in the folder, which has "/" behind it.
void write_list(file_changes& to, const std::string& in, X509_CRL& list);
/// The authority's lists in revoked.pem beside its certificate in this file; empty without that
/// file. Failure: error{invalid} if there is none in it.
std::vector<x509_crl_ptr> revocation_lists_beside(const std::string& path, X509& authority);

/// Whom a folder trusts: its authority.pem and revoked.pem, which change together.
class trusted_files {
public:
    explicit trusted_files(const std::string& folder);

    /// Adds the certificate, unless it is there.
    void add(X509& authority);
    /// In place of an older list of the same authority, which must be among those that are trusted.
    /// Failure: error{invalid} for lists of others, for an older one, and for one that takes back
    /// what another of its number revokes.
    void take_over(X509_CRL& list);
    void write_changes(file_changes& to) const;

private:
    struct file {
        std::string path, text;
        bool has_changed = false;
    };
    file authorities_, lists_;
};

/// Of a certificate by this authority, or of text like "4AB1…".
openssl_ptr<ASN1_STRING> serial_to_revoke(const std::string& certificate_or_serial,
                                          X509& authority);

}  // namespace amalgam::detail
