#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include <amalgam/core/result.hpp>
#include <amalgam/fabric/credentials.hpp>

#include "fabric/trust/keys/certificate.hpp"
#include "fabric/trust/keys/pem.hpp"
#include "fabric/trust/keys/pre_shared_keys.hpp"
#include "fabric/trust/openssl/openssl.hpp"

namespace amalgam::detail {

/// What is in the files of credentials. Nothing of it was parsed.
struct credential_texts {
    /// Waits for the file system. Uses nothing of OpenSSL but its secure heap.
    /// Failure: as read_pem_file(), read_secret_file() and read_trusted_file().
    static result<credential_texts> in_files(const credential_parts& paths);

    std::string certificate{}, authority{}, revoked{}, trusted{};
    std::optional<secret_text> secret{};  ///< The private key, or the pre-shared keys.

    /// But for the secret.
    bool are_as(const credential_texts& other) const noexcept {
        return certificate == other.certificate && authority == other.authority &&
               revoked == other.revoked && trusted == other.trusted;
    }
};

/// Credentials as they were read once: every part parsed, and the parts found to fit each other.
///
/// Threads: immutable; OpenSSL counts its references atomically.
class loaded_credentials {
public:
    using loaded = result<std::shared_ptr<const loaded_credentials>>;

    /// Whether these may be the parts of one, before anything is read.
    /// Failure: `invalid`; `unsupported` without OpenSSL.
    static result<void> check_parts(const credential_parts& parts);
    /// Failure: see `credentials`. Not that the certificate has expired, if it is the one that is
    /// in force: what was revoked since must be refused all the same.
    static loaded from_files(const credential_parts& paths,
                             const loaded_credentials* in_force = nullptr,
                             wall_time now = std::chrono::system_clock::now());
    /// The same of what was read there.
    static loaded from_texts(const credential_texts& read, const credential_parts& paths,
                             const loaded_credentials* in_force = nullptr,
                             wall_time now = std::chrono::system_clock::now());
    static loaded from_text(const credential_parts& pem);
    ~loaded_credentials();

    const identity& self() const noexcept { return self_; }
    wall_time expires() const noexcept { return expires_; }
    std::string explain() const;
    /// Whether peers are trusted for their keys, not for an authority's word.
    bool trusts_by_key() const noexcept { return trusted_keys_.has_value(); }
    /// Whether that key is one of these.
    bool trusts(const key_fingerprint& key) const noexcept;
    /// The pre-shared keys; null: there is a certificate, see certificate().
    const pre_shared_keys* shared() const noexcept { return shared_ ? &*shared_ : nullptr; }
    /// After `before`: of the same kind, and no list of an authority that both trust is older than
    /// there, or missing.
    /// Failure: `invalid`.
    result<void> check_follows(const loaded_credentials& before) const;
    /// Of texts that are the same but for the secret: whether that is, too.
    bool has_secret_of(const loaded_credentials& other) const noexcept;
    bool has_revocation_lists() const noexcept { return !lists_.empty(); }
    /// When the first of them ends.
    std::chrono::system_clock::time_point lists_end() const;

    /// Gives it the certificate, its chain and the key, and what peers' are verified with, if there
    /// are any.
    /// Failure: `invalid` if OpenSSL refuses a part, for example a key that is too short.
    result<void> put_into(SSL_CTX& context) const;

    // For signed statements outside of TLS: see signatures.hpp. Precondition: shared() is null.
    X509& certificate() const noexcept { return *certificate_; }
    EVP_PKEY& key() const noexcept { return *key_; }
    X509_STORE& store() const noexcept { return *store_; }

private:
    loaded_credentials() = default;
    struct texts;
    struct names;
    static loaded from_shared(result<pre_shared_keys> keys);
    static loaded from(const texts& pem, const credential_parts& parts, const names& named,
                       const loaded_credentials* in_force);
    result<void> take(const texts& pem, const names& named, const loaded_credentials* in_force);
    result<void> take_own(std::string_view certificate, std::string_view key, const names& named,
                          const loaded_credentials* in_force);
    result<void> take_trusted(std::string_view list, const credential_parts& parts,
                              const names& named, const loaded_credentials* in_force);
    result<void> take_authorities(std::string_view authority, const names& named);
    result<void> take_lists(std::string_view revoked, const names& named);
    void remember(const loaded_credentials& before);
    result<void> check_follows(X509_CRL& old) const;
    X509* authority_of(X509_CRL& list) const;
    result<void> check_signer(X509_CRL& list, const names& named) const;
    static result<void> check_list(const X509_CRL& list, const names& named);
    result<void> make_store();

    identity self_;
    wall_time expires_{};
    x509_ptr certificate_;
    std::vector<x509_ptr> chain_;
    pkey_ptr key_;
    std::vector<x509_ptr> authorities_;
    std::vector<x509_crl_ptr> lists_;  // At most one of each authority.
    // Of authorities that were taken out while the program runs: should they come back, their lists
    // do not go back.
    std::vector<x509_crl_ptr> former_lists_;
    // None: authorities are trusted. Empty once the last one was taken out while the program runs.
    std::optional<std::vector<key_fingerprint>> trusted_keys_;
    std::optional<pre_shared_keys> shared_;
    openssl_ptr<X509_STORE> store_;
};

}  // namespace amalgam::detail
