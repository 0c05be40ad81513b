#pragma once

#include <string>
#include <vector>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/fabric/identity.hpp>

namespace amalgam {

namespace detail {
class credential_store;
}

/// The parts of credentials: paths of PEM files, or the PEM text itself, as the function says that
/// takes them.
struct credential_parts {
    /// The certificate of this endpoint; after it those that lead to the authority, if any.
    std::string certificate{};
    /// Its private key, not encrypted. Ed25519, EC or RSA (2048 bits or more).
    std::string key{};
    /// Certificates of the authorities whose certificates are trusted. Empty only with
    /// `trusted_keys` or `trusted_list`.
    std::string authority{};
    /// Revocation lists of these authorities, in force until they are replaced. Empty: none. An
    /// authority without a list has revoked nothing.
    std::string revoked{};
    /// Peers with these keys are trusted, whoever signed their certificates, and no others. Only
    /// without `authority` and `revoked`. Nobody vouches for what such a certificate says, so the
    /// peer's identity::name is its fingerprint, and it has no groups.
    std::vector<key_fingerprint> trusted_keys{};
    /// More of these, as a text with a fingerprint in each line, as `amalgam key show` prints it;
    /// blank lines and what is behind a # say nothing. Up to 1024.
    std::string trusted_list{};
    /// In place of all else: keys that both ends were given, a line NAME:HEXADECIMAL each, of 16 to
    /// 64 bytes. The first is the own one, by which this endpoint proves itself when it connects;
    /// whom it accepts may have any of them. Up to 1024.
    std::string shared_keys{};
};

/// What an endpoint proves itself with, and whom it trusts: for port_options::trust.
///
/// Peers prove themselves as this endpoint does, over TLS 1.3: by a certificate (X.509) and its
/// private key, or by a pre-shared key, whose name is then the peer's. `amalgam key` makes them,
/// see docs/guide/trust.md; so does any other authority.
///
/// What it holds does not change, except by reload(). That happens by itself: from the opening of
/// the first port on, a thread looks at the files once a second, and if one has changed reads all
/// again. If the new ones cannot be used, the old stay in force, and the log says why, once per
/// change, at the next connection. So they do while a file system does not answer; no connection
/// waits for it. A relative path is that of the folder which was current when they were opened.
/// Connections made before stay as they are; sessions begun before are not resumed. A list of
/// trusted keys may become empty while a program runs, which then trusts nobody, and not before.
///
/// Private and pre-shared keys are kept in OpenSSL's secure heap: locked in memory as far as
/// RLIMIT_MEMLOCK allows, and left out of core dumps. A pre-shared key is elsewhere in memory, too,
/// while a handshake uses it. Keys never appear in logs or sentences.
///
/// Owner:   shared; ports hold it while they live.
/// Threads: all members may run concurrently.
/// Failure: one sentence each, which names the file: `not_found` if it cannot be read; `denied` if
///          others than its owner may read the private or pre-shared keys (mode beyond 0600), or
///          everybody may write the file of authorities, of revocation lists or of trusted keys,
///          or replace it; `invalid` for a wrong format, a key that is encrypted or does not fit
///          the certificate, a certificate that has expired or is not valid yet, a revocation list
///          of another authority, or parts that are missing or exclude each other.
/// Cost:    reads and parses all parts, about a millisecond; a thread, unless it is from text.
class credentials {
public:
    /// From `certificate.pem`, `key.pem`, `authority.pem` and, if it exists, `revoked.pem` in this
    /// folder, with `trusted.keys` in place of the last two if it is there, or from its
    /// `shared.keys`, as `amalgam key` writes them. A name without "/" means a folder of
    /// key_folder().
    static std::shared_ptr<const credentials> from_folder(const std::string& folder);
    static std::shared_ptr<const credentials> from_files(const credential_parts& paths);
    /// reload() has nothing to read again then.
    static std::shared_ptr<const credentials> from_text(const credential_parts& pem);

    /// The same, without throwing amalgam::error.
    static result<std::shared_ptr<const credentials>> try_from_folder(const std::string& folder);
    static result<std::shared_ptr<const credentials>> try_from_files(const credential_parts& paths);
    static result<std::shared_ptr<const credentials>> try_from_text(const credential_parts& pem);

    credentials(const credentials&) = delete;
    credentials& operator=(const credentials&) = delete;
    ~credentials();

    /// Reads the files again now. On failure what was read before stays in force. That the
    /// certificate in force has expired is no failure, so that new revocation lists are taken.
    result<void> reload() const;

    identity self() const;  ///< Who this endpoint is to its peers.
    /// When its certificate, or the first one after it, expires. Pre-shared keys do not.
    std::chrono::system_clock::time_point expires() const;
    /// Who it is, until when, and whom it trusts: one or two sentences, for people.
    std::string explain() const;

    /// For Amalgam itself.
    detail::credential_store& store() const noexcept { return *store_; }

private:
    explicit credentials(std::unique_ptr<detail::credential_store> store) noexcept;
    std::unique_ptr<detail::credential_store> store_;
};

}  // namespace amalgam
