#include "fabric/trust/credentials/signatures.hpp"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include <fmt/format.h>
#include <openssl/err.h>

namespace amalgam::detail {

namespace {

struct digest_free {
    void operator()(EVP_MD_CTX* p) const noexcept { EVP_MD_CTX_free(p); }
};
using digest_ptr = std::unique_ptr<EVP_MD_CTX, digest_free>;

/// Ed25519 and Ed448 have their own; others take the one that both sides know.
const char* digest_for(const EVP_PKEY& key) {
    const bool has_own = EVP_PKEY_is_a(&key, "ED25519") == 1 || EVP_PKEY_is_a(&key, "ED448") == 1;
    return has_own ? nullptr : "SHA256";
}

std::vector<unsigned char> whole(std::string_view context, const_bytes statement) {
    std::vector<unsigned char> all(context.begin(), context.end());
    all.push_back(0);
    const auto* const bytes = reinterpret_cast<const unsigned char*>(statement.data());
    all.insert(all.end(), bytes, bytes + statement.size());
    return all;
}

failure untrusted(const char* why) {
    clear_openssl_errors();
    return {{errc::denied}, fmt::format("the sender's certificate is refused: {}", why)};
}

result<wall_time> is_trusted_key(const loaded_credentials& by, X509& shown, EVP_PKEY& key) {
    if (!by.trusts(fingerprint_of(key))) return untrusted("its key is not among the trusted ones");
    if (X509_check_purpose(&shown, X509_PURPOSE_SSL_CLIENT, 0) != 1)
        return untrusted(X509_verify_cert_error_string(X509_V_ERR_INVALID_PURPOSE));
    if (const auto valid = check_time(shown, std::chrono::system_clock::now()); !valid)
        return untrusted(valid.sentence().c_str());
    return time_of(X509_get0_notAfter(&shown));
}

/// Until when.
result<wall_time> is_of_authority(const loaded_credentials& by, X509& shown) {
    const openssl_ptr<X509_STORE_CTX> at(X509_STORE_CTX_new());
    if (at == nullptr || X509_STORE_CTX_init(at.get(), &by.store(), &shown, nullptr) != 1)
        throw std::bad_alloc();
    X509_STORE_CTX_set_purpose(at.get(), X509_PURPOSE_SSL_CLIENT);
    X509_VERIFY_PARAM_set_auth_level(X509_STORE_CTX_get0_param(at.get()), 2);
    if (by.has_revocation_lists())
        X509_STORE_CTX_set_flags(at.get(), X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL);
    if (X509_verify_cert(at.get()) == 1)
        return std::min(first_end_of(X509_STORE_CTX_get0_chain(at.get())), by.lists_end());
    return untrusted(X509_verify_cert_error_string(X509_STORE_CTX_get_error(at.get())));
}

}  // namespace

std::vector<std::byte> certificate_bytes(const loaded_credentials& of) {
    unsigned char* der = nullptr;
    const int bytes = i2d_X509(&of.certificate(), &der);
    if (bytes <= 0) throw std::bad_alloc();
    const auto* const begin = reinterpret_cast<const std::byte*>(der);
    std::vector<std::byte> all;
    try {
        all.assign(begin, begin + bytes);
    } catch (...) {
        OPENSSL_free(der);
        throw;
    }
    OPENSSL_free(der);
    return all;
}

std::size_t max_signature_bytes(const loaded_credentials& by) {
    return static_cast<std::size_t>(std::max(0, EVP_PKEY_get_size(&by.key())));
}

std::vector<std::byte> sign(const loaded_credentials& by, std::string_view context,
                            const_bytes statement) {
    const std::vector<unsigned char> text = whole(context, statement);
    const digest_ptr at(EVP_MD_CTX_new());
    std::size_t size = max_signature_bytes(by);
    std::vector<std::byte> signature(size);
    const bool done = at != nullptr &&
                      EVP_DigestSignInit_ex(at.get(), nullptr, digest_for(by.key()), nullptr,
                                            nullptr, &by.key(), nullptr) == 1 &&
                      EVP_DigestSign(at.get(), reinterpret_cast<unsigned char*>(signature.data()),
                                     &size, text.data(), text.size()) == 1;
    if (!done) {  // The key could, when it was loaded.
        clear_openssl_errors();
        throw std::bad_alloc();
    }
    signature.resize(size);
    return signature;
}

result<verified_signer> verified_signer::of(const loaded_credentials& by, const_bytes certificate) {
    const auto* at = reinterpret_cast<const unsigned char*>(certificate.data());
    const auto* const end = at + certificate.size();
    verified_signer made;
    if (certificate.size() <= static_cast<std::size_t>(std::numeric_limits<int>::max()))
        made.certificate_.reset(d2i_X509(nullptr, &at, static_cast<long>(certificate.size())));
    if (made.certificate_ == nullptr || at != end) return untrusted("it is malformed");
    X509& shown = *made.certificate_;
    EVP_PKEY* const key = X509_get0_pubkey(&shown);
    if (key == nullptr) return untrusted("its key is of no known kind");
    const auto trusted =
        by.trusts_by_key() ? is_trusted_key(by, shown, *key) : is_of_authority(by, shown);
    if (!trusted) return trusted.why();
    auto who = by.trusts_by_key() ? identity_of_key(shown) : identity_of(shown);
    if (!who) return who.why();
    made.who_ = std::move(*who);
    made.expires_ = *trusted;
    return made;
}

bool verified_signer::signed_by(std::string_view context, const_bytes statement,
                                const_bytes signature) const {
    const std::vector<unsigned char> text = whole(context, statement);
    EVP_PKEY* const key = X509_get0_pubkey(certificate_.get());
    const digest_ptr at(EVP_MD_CTX_new());
    const bool is_right =
        at != nullptr &&
        EVP_DigestVerifyInit_ex(at.get(), nullptr, digest_for(*key), nullptr, nullptr, key,
                                nullptr) == 1 &&
        EVP_DigestVerify(at.get(), reinterpret_cast<const unsigned char*>(signature.data()),
                         signature.size(), text.data(), text.size()) == 1;
    if (!is_right) clear_openssl_errors();
    return is_right;
}

}  // namespace amalgam::detail
