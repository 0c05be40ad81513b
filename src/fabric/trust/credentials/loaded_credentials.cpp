#include "fabric/trust/credentials/loaded_credentials.hpp"

#include <algorithm>
#include <functional>
#include <mutex>
#include <new>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <openssl/err.h>

#include "fabric/trust/keys/certificate_builder.hpp"
#include "fabric/trust/keys/pem.hpp"
#include "fabric/trust/keys/trusted_keys.hpp"
#include "fabric/trust/openssl/openssl_library.hpp"

namespace amalgam::detail {

struct loaded_credentials::texts {
    std::string_view certificate, key, authority, revoked, trusted;
};

/// How sentences call the parts, and the time by which these are judged.
struct loaded_credentials::names {
    std::string certificate, key, authority, revoked, trusted;
    wall_time now;
};

namespace {

std::string quoted(const std::string& path) {
    return fmt::format("\"{}\"", path);
}

/// What would be denied to a peer makes a part invalid here.
failure unusable(const std::string& name, const failure& why) {
    return {{errc::invalid}, fmt::format("{}: {}", name, why.sentence)};
}

/// Called by OpenSSL for each step of verifying a peer. An authority without a revocation list has
/// revoked nothing; that the lists we have are complete was checked when they were read.
int allow_authorities_without_list(int good, X509_STORE_CTX* at) {
    if (good == 1 || X509_STORE_CTX_get_error(at) != X509_V_ERR_UNABLE_TO_GET_CRL) return good;
    X509_STORE_CTX_set_error(at, X509_V_OK);
    return 1;
}

}  // namespace

result<void> loaded_credentials::check_parts(const credential_parts& parts) {
    if (const auto found = find_openssl(); !found) return found;
    const bool names_keys = !parts.trusted_keys.empty() || !parts.trusted_list.empty();
    if (!parts.shared_keys.empty()) {
        if (parts.certificate.empty() && parts.key.empty() && parts.authority.empty() &&
            parts.revoked.empty() && !names_keys)
            return {};
        return {errc::invalid,
                "credentials have pre-shared keys beside a certificate, expected one kind, as "
                "peers prove themselves in one way; keep each in a folder of its own"};
    }
    if (parts.certificate.empty() || parts.key.empty())
        return {errc::invalid,
                "credentials lack a certificate or its private key, expected both, as peers must "
                "prove themselves to each other; example: amalgam key new node7 --with lab"};
    if (parts.authority.empty() != names_keys)
        return {errc::invalid,
                fmt::format("credentials name {}, expected either certificates of authorities or "
                            "fingerprints of trusted keys",
                            parts.authority.empty() ? "nobody they trust" : "both")};
    if (names_keys && !parts.revoked.empty())
        return {errc::invalid,
                "credentials with trusted keys have a revocation list, which would revoke nothing; "
                "leave out the keys that are trusted no longer"};
    return {};
}

result<credential_texts> credential_texts::in_files(const credential_parts& paths) {
    // A list, too: an older one is as well signed, and takes back what was revoked.
    const auto trusted = [](const std::string& path, const char* expected = "a file in PEM") {
        return path.empty() ? result<std::string>(std::string())
                            : read_trusted_file(path, expected);
    };
    const bool is_shared = !paths.shared_keys.empty();
    auto certificate =
        is_shared ? result<std::string>(std::string()) : read_pem_file(paths.certificate);
    if (!certificate) return certificate.why();
    auto secret = is_shared ? read_secret_file(paths.shared_keys, kind_of_pre_shared_file)
                            : read_secret_file(paths.key);
    if (!secret) return secret.why();
    auto authority = trusted(paths.authority);
    if (!authority) return authority.why();
    auto revoked = trusted(paths.revoked);
    if (!revoked) return revoked.why();
    auto keys = trusted(paths.trusted_list, kind_of_trusted_file);
    if (!keys) return keys.why();
    return credential_texts{std::move(*certificate), std::move(*authority), std::move(*revoked),
                            std::move(*keys), std::move(*secret)};
}

loaded_credentials::loaded loaded_credentials::from_files(const credential_parts& paths,
                                                          const loaded_credentials* in_force,
                                                          wall_time now) {
    if (const auto good = check_parts(paths); !good) return good.why();
    const auto read = credential_texts::in_files(paths);
    if (!read) return read.why();
    return from_texts(*read, paths, in_force, now);
}

loaded_credentials::loaded loaded_credentials::from_texts(const credential_texts& read,
                                                          const credential_parts& paths,
                                                          const loaded_credentials* in_force,
                                                          wall_time now) {
    if (!paths.shared_keys.empty())
        return from_shared(pre_shared_keys::in(read.secret->text(), quoted(paths.shared_keys)));
    // A copy begins so: without this, nothing would be revoked until it is complete.
    if (!paths.revoked.empty() && read.revoked.find_first_not_of(" \t\r\n") == std::string::npos)
        return {errc::invalid, fmt::format("{} is empty, expected a revocation list, or no file",
                                           quoted(paths.revoked))};
    return from({read.certificate, read.secret->text(), read.authority, read.revoked, read.trusted},
                paths,
                {quoted(paths.certificate), quoted(paths.key), quoted(paths.authority),
                 quoted(paths.revoked), quoted(paths.trusted_list), now},
                in_force);
}

loaded_credentials::loaded loaded_credentials::from_text(const credential_parts& pem) {
    if (const auto good = check_parts(pem); !good) return good.why();
    if (!pem.shared_keys.empty())
        return from_shared(pre_shared_keys::in(pem.shared_keys, "the text of pre-shared keys"));
    return from({pem.certificate, pem.key, pem.authority, pem.revoked, pem.trusted_list}, pem,
                {"the certificate", "the private key", "the authority", "the revocation list",
                 "the text of trusted keys", std::chrono::system_clock::now()},
                nullptr);
}

loaded_credentials::~loaded_credentials() {
    const std::lock_guard hold(secure_heap_lock());
    key_.reset();
}

loaded_credentials::loaded loaded_credentials::from_shared(result<pre_shared_keys> keys) {
    if (!keys) return keys.why();
    std::shared_ptr<loaded_credentials> made(new loaded_credentials);
    made->self_ = {.kind = identity_kind::pre_shared, .name = keys->own().name};
    made->expires_ = wall_time::max();
    made->shared_.emplace(std::move(*keys));
    return std::shared_ptr<const loaded_credentials>(std::move(made));
}

loaded_credentials::loaded loaded_credentials::from(const texts& pem, const credential_parts& parts,
                                                    const names& named,
                                                    const loaded_credentials* in_force) {
    const no_errors_left at_the_end;
    std::shared_ptr<loaded_credentials> made(new loaded_credentials);
    if (parts.authority.empty())
        if (const auto taken = made->take_trusted(pem.trusted, parts, named, in_force); !taken)
            return taken.why();
    (void)openssl_lacked_memory();
    const auto done = made->take(pem, named, in_force);
    if (openssl_lacked_memory())
        return {errc::no_memory,
                fmt::format("{} and what belongs to it cannot be read: out of memory",
                            named.certificate)};
    if (!done) return done.why();
    if (in_force != nullptr) made->remember(*in_force);
    return std::shared_ptr<const loaded_credentials>(std::move(made));
}

bool loaded_credentials::has_secret_of(const loaded_credentials& other) const noexcept {
    // A private key fits its certificate, which is the same.
    if (shared_ && other.shared_)
        return std::ranges::equal(shared_->all(), other.shared_->all(),
                                  [](const pre_shared_keys::key& a, const pre_shared_keys::key& b) {
                                      return a.name == b.name &&
                                             std::ranges::equal(a.secret, b.secret);
                                  });
    return !shared_ && !other.shared_;
}

/// The lists of those who are no longer trusted; of more than there may be, not the oldest.
void loaded_credentials::remember(const loaded_credentials& before) {
    for (const auto* const lists : {&before.lists_, &before.former_lists_})
        for (const x509_crl_ptr& each : *lists) {
            if (authority_of(*each) != nullptr) continue;
            if (former_lists_.size() == limits::most_pem_parts) return;
            X509_CRL_up_ref(each.get());
            former_lists_.emplace_back(each.get());
        }
}

result<void> loaded_credentials::take(const texts& pem, const names& named,
                                      const loaded_credentials* in_force) {
    if (auto done = take_own(pem.certificate, pem.key, named, in_force); !done) return done;
    if (auto done = take_authorities(pem.authority, named); !done) return done;
    if (auto done = take_lists(pem.revoked, named); !done) return done;
    return make_store();
}

result<void> loaded_credentials::take_own(std::string_view certificate, std::string_view key,
                                          const names& named, const loaded_credentials* in_force) {
    auto own = certificates_in(certificate, named.certificate);
    if (!own) return own.why();
    auto secret = private_key_in(key, named.key);
    if (!secret) return secret.why();
    key_ = std::move(*secret);
    certificate_ = std::move(own->front());
    std::move(own->begin() + 1, own->end(), std::back_inserter(chain_));
    if (X509_check_private_key(certificate_.get(), key_.get()) != 1) {
        clear_openssl_errors();
        return {errc::invalid,
                fmt::format("{} is not the private key of the certificate {}, expected both from "
                            "one `amalgam key new`",
                            named.key, named.certificate)};
    }
    auto who = identity_of(*certificate_);
    if (!who) return unusable(named.certificate, who.why());
    self_ = std::move(*who);
    const bool is_in_force = in_force != nullptr && in_force->certificate_ != nullptr &&
                             X509_cmp(in_force->certificate_.get(), certificate_.get()) == 0;
    if (const auto valid = check_time(*certificate_, named.now); !valid && !is_in_force)
        return {errc::invalid,
                fmt::format(
                    "the certificate {} {}; a new one: amalgam key {} --force", named.certificate,
                    valid.sentence(),
                    trusts_by_key() ? "new FOLDER --self-signed" : "sign FOLDER --with AUTHORITY")};
    expires_ = time_of(X509_get0_notAfter(certificate_.get()));
    for (const x509_ptr& each : chain_)
        expires_ = std::min(expires_, time_of(X509_get0_notAfter(each.get())));
    return {};
}

/// Those that the program names, and those of the list. A list may become empty while the program
/// runs: else who is taken out as the last one would be trusted on.
result<void> loaded_credentials::take_trusted(std::string_view list, const credential_parts& parts,
                                              const names& named,
                                              const loaded_credentials* in_force) {
    auto all = trusted_keys_in(list, named.trusted);
    if (!all) return all.why();
    all->insert(all->end(), parts.trusted_keys.begin(), parts.trusted_keys.end());
    if (all->empty() && in_force == nullptr)
        return {errc::invalid,
                fmt::format("{} has no key, so that nobody would be trusted, expected the "
                            "fingerprint of one; example: amalgam key trust node7 FINGERPRINT",
                            named.trusted)};
    trusted_keys_ = std::move(*all);
    return {};
}

bool loaded_credentials::trusts(const key_fingerprint& key) const noexcept {
    return trusted_keys_ &&
           std::find(trusted_keys_->begin(), trusted_keys_->end(), key) != trusted_keys_->end();
}

result<void> loaded_credentials::take_authorities(std::string_view authority, const names& named) {
    if (trusts_by_key()) return {};
    auto all = certificates_in(authority, named.authority);
    if (!all) return all.why();
    authorities_ = std::move(*all);
    result<void> last;
    bool any = false;
    for (const x509_ptr& each : authorities_) {
        if (X509_check_ca(each.get()) != 1)
            return {errc::invalid,
                    fmt::format("{}: the certificate of {} is not an authority's, expected one "
                                "that may sign others; example: amalgam key new lab --authority",
                                named.authority, to_line(X509_get_subject_name(each.get())))};
        const auto valid = check_time(*each, named.now);
        any = any || valid;
        if (!valid) last = valid;
    }
    if (any) return {};
    return {errc::invalid, fmt::format("the authority {} {}", named.authority, last.sentence())};
}

/// Null if none of those that are trusted signed it.
X509* loaded_credentials::authority_of(X509_CRL& list) const {
    const auto found = std::find_if(authorities_.begin(), authorities_.end(),
                                    [&](const x509_ptr& each) { return is_list_of(list, *each); });
    return found == authorities_.end() ? nullptr : found->get();
}

/// Whether what the authority of that list revokes now is at least what it revoked then.
result<void> loaded_credentials::check_follows(X509_CRL& old) const {
    X509* const by = authority_of(old);
    if (by == nullptr) return {};  // No longer trusted.
    const auto now = std::find_if(lists_.begin(), lists_.end(),
                                  [&](const x509_crl_ptr& each) { return is_list_of(*each, *by); });
    const std::string called = to_line(X509_CRL_get_issuer(&old));
    if (now == lists_.end())
        return {errc::invalid,
                fmt::format("the revocation list of {} has vanished, expected it or a newer "
                            "one",
                            called)};
    if (is_older(**now, old))
        return {errc::invalid,
                fmt::format("the revocation list of {} is {}, older than {} in force", called,
                            number_in_words(**now), number_in_words(old))};
    if (const std::string lacking = taken_back_by(**now, old); !lacking.empty())
        return {errc::invalid,
                fmt::format("the revocation list of {} lacks {}, which one of the same number "
                            "that is in force revokes, as copies of an authority make them",
                            called, lacking)};
    return {};
}

result<void> loaded_credentials::check_follows(const loaded_credentials& before) const {
    if (shared_.has_value() != before.shared_.has_value())
        return {errc::invalid,
                fmt::format("credentials had {} and now have {}, expected the same kind while a "
                            "program runs; start it again",
                            before.shared_ ? "pre-shared keys" : "a certificate",
                            shared_ ? "pre-shared keys" : "a certificate")};
    const no_errors_left at_the_end;
    for (const auto* const lists : {&before.lists_, &before.former_lists_})
        for (const x509_crl_ptr& old : *lists)
            if (auto good = check_follows(*old); !good) return good;
    return {};
}

result<void> loaded_credentials::check_signer(X509_CRL& list, const names& named) const {
    const auto called = [&] { return to_line(X509_CRL_get_issuer(&list)); };
    if (authority_of(list) == nullptr)
        return {errc::invalid,
                fmt::format("{}: the revocation list of {} is not signed by an authority in {}",
                            named.revoked, called(), named.authority)};
    for (const x509_ptr& each : authorities_)
        if (is_list_of(list, *each) && !says_it_is_of(list, *each))
            return {errc::invalid,
                    fmt::format("{}: the revocation list of {} is for another certificate of that "
                                "authority than the one in {}, expected a list for this one, as "
                                "nobody would be refused by it",
                                named.revoked, called(), named.authority)};
    return {};
}

result<void> loaded_credentials::check_list(const X509_CRL& list, const names& named) {
    const X509_NAME* const by = X509_CRL_get_issuer(&list);
    // These restrict it to some certificates, and then OpenSSL would not find it for the others.
    if (X509_CRL_get_ext_by_NID(&list, NID_issuing_distribution_point, -1) >= 0 ||
        X509_CRL_get_ext_by_NID(&list, NID_delta_crl, -1) >= 0)
        return {errc::invalid,
                fmt::format("{}: the revocation list of {} is not complete, expected one of all "
                            "revoked certificates",
                            named.revoked, to_line(by))};
    const ASN1_TIME* const end = X509_CRL_get0_nextUpdate(&list);
    if (end != nullptr && time_of(end) < named.now)
        return {errc::invalid,
                fmt::format("{}: the revocation list of {} has expired on {}, expected the newest",
                            named.revoked, to_line(by), to_text(time_of(end)))};
    return {};
}

wall_time loaded_credentials::lists_end() const {
    wall_time first = wall_time::max();
    for (const x509_crl_ptr& each : lists_)
        if (const ASN1_TIME* const end = X509_CRL_get0_nextUpdate(each.get()))
            first = std::min(first, time_of(end));
    return first;
}

result<void> loaded_credentials::take_lists(std::string_view revoked, const names& named) {
    auto all = revocation_lists_in(revoked, named.revoked);
    if (!all) return all.why();
    // Those of an authority that was taken out do no harm beside others.
    const auto is_ours = [&](const x509_crl_ptr& list) {
        return authority_of(*list) != nullptr ||
               std::any_of(authorities_.begin(), authorities_.end(),
                           [&](const x509_ptr& each) { return says_it_is_of(*list, *each); });
    };
    if (std::any_of(all->begin(), all->end(), is_ours)) std::erase_if(*all, std::not_fn(is_ours));
    for (x509_crl_ptr& each : *all) {
        if (const auto good = check_signer(*each, named); !good) return good;
        // OpenSSL would choose by their times, and take either of two of one second.
        const auto same = std::find_if(
            lists_.begin(), lists_.end(),
            [&](const x509_crl_ptr& other) { return is_list_of(*other, *authority_of(*each)); });
        if (same == lists_.end())
            lists_.push_back(std::move(each));
        else if (is_older(**same, *each))
            *same = std::move(each);
    }
    for (const x509_crl_ptr& each : lists_)
        if (const auto good = check_list(*each, named); !good) return good;
    return {};
}

result<void> loaded_credentials::make_store() {
    store_.reset(X509_STORE_new());
    if (store_ == nullptr) throw std::bad_alloc();
    for (const x509_ptr& each : authorities_)
        if (X509_STORE_add_cert(store_.get(), each.get()) != 1) throw std::bad_alloc();
    for (const x509_crl_ptr& each : lists_)
        if (X509_STORE_add_crl(store_.get(), each.get()) != 1) throw std::bad_alloc();
    X509_STORE_set_verify_cb(store_.get(), &allow_authorities_without_list);
    // So that what OpenSSL refuses is told now, not at the first handshake.
    const ssl_context_ptr trial(SSL_CTX_new(TLS_method()));
    if (trial == nullptr) throw std::bad_alloc();
    return put_into(*trial);
}

result<void> loaded_credentials::put_into(SSL_CTX& context) const {
    SSL_CTX_set_security_level(&context, 2);
    if (shared_) return {};  // See verify_peers_by().
    bool good = SSL_CTX_use_certificate(&context, certificate_.get()) == 1 &&
                SSL_CTX_use_PrivateKey(&context, key_.get()) == 1;
    for (const x509_ptr& each : chain_)
        good = good && SSL_CTX_add1_chain_cert(&context, each.get()) == 1;
    if (!good)
        return {errc::invalid, fmt::format("the certificate of {} cannot be used for TLS ({}), "
                                           "expected a key of Ed25519, EC P-256 or larger, or RSA "
                                           "of 2048 bits or more",
                                           to_text(self_), take_openssl_error())};
    SSL_CTX_set1_cert_store(&context, store_.get());
    return {};
}

std::string loaded_credentials::explain() const {
    if (shared_) {
        const std::size_t others = shared_->all().size() - 1;
        return fmt::format(
            "proves itself by the pre-shared key {}; trusts who has {}", to_text(self_),
            others == 0 ? std::string("it") : fmt::format("it or one of {} others", others));
    }
    std::string trusted;
    for (const x509_ptr& each : authorities_)
        trusted += (trusted.empty() ? "" : "; ") + to_line(X509_get_subject_name(each.get()));
    int revoked = 0;
    for (const x509_crl_ptr& each : lists_)
        revoked += std::max(0, sk_X509_REVOKED_num(X509_CRL_get_REVOKED(each.get())));
    const std::string whom =
        trusts_by_key() ? fmt::format("{} keys", trusted_keys_->size())
                        : fmt::format("who was certified by {}{}", trusted,
                                      lists_.empty() ? std::string(" (no revocation list)")
                                                     : fmt::format(" ({} revoked)", revoked));
    return fmt::format("proves itself as {} until {}; trusts {}", to_text(self_), to_text(expires_),
                       whom);
}

}  // namespace amalgam::detail
