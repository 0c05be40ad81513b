#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/fabric/identity.hpp>

namespace amalgam {

// A small authority for a lab, in folders of PEM files. `amalgam key` is these functions.
//
// A folder has, of a key for an endpoint and of an authority:
//
//     key.pem          its private key, mode 0600
//     certificate.pem  its certificate; an authority's is signed by itself
//     request.pem      what an authority is asked to sign; not of authorities
//     authority.pem    the authorities that the endpoint trusts; not of authorities
//     revoked.pem      revocation lists of these authorities, or of this one
//
// openssl reads all of them (x509, pkey, req, crl, verify). An endpoint that trusts keys, and no
// authority, has in place of the last two, and of a request,
//
//     trusted.keys     fingerprints, a line each; what is behind a # is a comment
//
// A folder of pre-shared keys has only
//
//     shared.keys      lines NAME:HEXADECIMAL, mode 0600; the first is the own key
//
// Folders are made with mode 0700. Files appear whole or not at all, and replace others only if
// `overwrite` says so, but for revocation lists and lines of the files of keys.
//
// Threads: all functions may run concurrently, also in other processes.
// Failure: all throw amalgam::error with one sentence: `invalid` for names and values that cannot
//          be used, and files that are not what they should be; `not_found` for files that cannot
//          be read; `in_use` for those that would be replaced; `denied` for those that cannot be
//          written, and keys that others can read.
// Cost:    some milliseconds.

/// The folder that a user means: a path if it has a "/", else a name in the folder of all keys,
/// which is $XDG_CONFIG_HOME/amalgam/keys, or ~/.config/amalgam/keys.
std::string key_folder(std::string_view name_or_path);

/// Which kind of key is made.
enum class key_algorithm : std::uint8_t {
    ed25519,  ///< Small and fast.
    p256      ///< ECDSA over NIST P-256, where rules ask for it.
};

/// What make_key() makes, and for whom.
struct key_request {
    /// The common name: who its owner is. Letters, digits and ._@- up to 64.
    std::string name{};
    /// Names and IP addresses under which others connect to it; `*.rack.lab` for all of
    /// one level, below two labels at least.
    /// Without any it can connect, and nobody can connect to it. None for authorities.
    std::vector<std::string> hosts{};
    /// Of which groups it is a member, at most 64, with letters as in names. None for authorities.
    std::vector<std::string> groups{};
    /// How long an authority, or a self-signed certificate, is valid: 1 to 36500. Others are asked
    /// for when they are signed.
    unsigned days = 3650;
    key_algorithm algorithm = key_algorithm::ed25519;  ///< Of the key pair.
    bool authority = false;  ///< Makes an authority, which signs keys of others.
    /// With a certificate that the key itself signs, for peers that trust it by its fingerprint.
    /// Without groups, as nobody vouches for them.
    bool self_signed = false;
    /// Whom a self-signed one trusts, beside those in the folder.
    std::vector<key_fingerprint> trusted{};
    /// A pre-shared key in place of a private one: whoever has it can prove to be `name`. Without
    /// hosts, groups and algorithm.
    bool shared = false;
    bool overwrite = false;  ///< Replaces what is in the folder. False: that is an error.
};

/// Makes a key in `folder`, and a request for its certificate. An authority certifies itself, and
/// begins an empty revocation list. A certificate of an earlier key in the folder is removed; if
/// one of the files cannot be written, all stay as they were. The key of an authority is replaced
/// by another authority's only. A pre-shared key takes the place of the own one; others in the
/// folder stay, as do trusted keys.
void make_key(const std::string& folder, const key_request& what);

/// Throws as sign_key() would, if this folder or name is no authority that can sign, or not for so
/// many days.
void require_authority(const std::string& authority, std::optional<unsigned> days = {});

/// What sign_key() certifies, if not what was asked for, and for how long.
struct signing_options {
    /// 1 to 36500, and not beyond the authority's own end. Default: 365, or until that end.
    std::optional<unsigned> days{};
    /// What is certified, in place of what the request asks for.
    std::optional<std::vector<std::string>> hosts{};
    /// The same for its groups.
    std::optional<std::vector<std::string>> groups{};
    /// Where the certificate goes. Empty: the folder of the request. Never that of an authority.
    std::string output{};
    bool overwrite = false;  ///< Replaces a certificate there. False: that is an error.
};

/// Certifies what the request asks for: a file, or request.pem of a folder. Writes the certificate,
/// and adds the authority and its revocation list to those that the folder trusts. Whoever signs a
/// request from elsewhere says by this that name, hosts and groups are right.
/// Returns one line that says what was certified.
std::string sign_key(const std::string& file_or_folder, const std::string& authority,
                     const signing_options& how = {});

/// Lets the endpoint of `folder` trust an authority: a certificate in a file, or a folder, whose
/// revocation list is taken over, too, and first: who is interrupted trusts nobody whom it revokes.
/// A list in a file replaces the older one of its authority. A folder of pre-shared keys accepts
/// the own key of another one from then on. A folder that trusts no authority trusts the key of a
/// fingerprint, and once it has trusted.keys also that of a certificate.
/// Failure: `invalid`, too, for a folder whose revoked.pem is not of its authority, for a `folder`
/// that is an authority itself, and for a list that takes back what one of its number revokes.
/// Returns one line that says what is trusted.
std::string trust_authority(const std::string& folder, const std::string& file_or_folder);

/// Adds a certificate to the authority's revocation list: a file, a folder, or a serial number as
/// describe_key() prints it; if it has less than 16 digits, behind a 0, as names can look like it.
/// Endpoints refuse it once they have the new revoked.pem. The list stays in force as long as the
/// authority. An authority that has lost its newest list, whose number is in revoked.number,
/// neither revokes nor signs: error{invalid}. From a folder of pre-shared keys the one of that
/// name, file or folder is removed; from trusted.keys the one of that fingerprint, file or folder.
/// Returns one line that says what was revoked.
std::string revoke_key(const std::string& certificate_or_serial, const std::string& authority);

/// What a part of a file of keys is.
enum class key_part_kind : std::uint8_t {
    private_key,      ///< Of an endpoint or an authority.
    certificate,      ///< Of an endpoint.
    authority,        ///< A certificate that may sign others.
    request,          ///< What an authority is asked to sign.
    revocation_list,  ///< Certificates that an authority revoked.
    pre_shared_key,   ///< A secret that both ends have.
    trusted_key       ///< A fingerprint that is trusted without an authority.
};

/// The stable name, in words: "private key".
std::string_view name(key_part_kind kind) noexcept;

/// A certificate that a list revokes.
struct revoked_certificate {
    std::string serial{};                          ///< In hexadecimal, as key_part::serial.
    std::chrono::system_clock::time_point when{};  ///< When it was revoked.
};

/// What one part of a file of keys says: members that its kind has no use for are empty, zero.
struct key_part {
    std::string file{};    ///< Path of the file that it is in.
    key_part_kind kind{};  ///< Says which members are set.
    /// Common name of certificates, authorities and requests; of a pre-shared key, the name itself.
    std::string name{};
    std::string refusal{};  ///< Why a certificate names nobody: then it has no name and no groups.
    std::vector<std::string> hosts{};   ///< Of certificates and requests.
    std::vector<std::string> groups{};  ///< Of certificates and requests.
    std::string issuer{};               ///< Of certificates and revocation lists: "CN=lab".
    /// Of certificates and revocation lists: from when on it is valid, or in force.
    std::optional<std::chrono::system_clock::time_point> not_before{},
        /// Of the same: its end. A list without one is in force until it is replaced.
        not_after{};
    bool valid_now = false;    ///< Of certificates: by their times alone.
    std::string serial{};      ///< Of certificates: in hexadecimal, as openssl shows it.
    std::string algorithm{};   ///< Of keys that are not pre-shared: "ED25519", "EC", "RSA".
    std::uint32_t key_bits{};  ///< 0: without a key, or with one that is unknown.
    std::optional<key_fingerprint> fingerprint{};  ///< Of the public key.
    std::vector<revoked_certificate> revoked{};    ///< Of revocation lists.
    bool own = false;  ///< Of pre-shared keys: the one by which an endpoint proves itself.
};

/// What a file or the files of a folder are, in the order of the list above. Has nothing of a
/// secret: of a private key the fingerprint of its public half.
std::vector<key_part> read_key_parts(const std::string& file_or_folder);

/// The same, in lines for people.
std::string describe_key(const std::string& file_or_folder);

}  // namespace amalgam
