#include <algorithm>
#include <chrono>
#include <utility>

#include <amalgam/fabric/temporary_key.hpp>

#include "fabric/trust/keys/certificate.hpp"
#include "fabric/trust/keys/certificate_builder.hpp"
#include "fabric/trust/keys/pem.hpp"
#include "fabric/trust/openssl/openssl_library.hpp"

namespace amalgam {
namespace {

using namespace detail;

constexpr auto longest_life = std::chrono::hours(24 * 3650);  // Of a process.
constexpr std::size_t longest_name = 64;

std::string certifiable(std::string_view name) {
    std::string text(name.substr(0, longest_name));
    for (char& c : text) {
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                           (c >= '0' && c <= '9') || std::string_view("._@-").find(c) != name.npos;
        if (!plain) c = '_';
    }
    return text.empty() ? "_" : text;
}

}  // namespace

struct temporary_key::parts {
    explicit parts(const std::string& name) : key(generate_key(key_algorithm::ed25519)) {
        const wall_time end = std::chrono::system_clock::now() + longest_life;
        certificate = to_pem(*make_self_signed({name, {}, {}}, *key, end));
        fingerprint = fingerprint_of(*key);
    }

    pkey_ptr key;
    std::string certificate;
    key_fingerprint fingerprint;
};

temporary_key::temporary_key(std::string_view name)
    : parts_((find_openssl().value(), std::make_unique<parts>(certifiable(name)))) {}
temporary_key::temporary_key(temporary_key&&) noexcept = default;
temporary_key& temporary_key::operator=(temporary_key&&) noexcept = default;
temporary_key::~temporary_key() = default;

const key_fingerprint& temporary_key::fingerprint() const noexcept {
    return parts_->fingerprint;
}

std::shared_ptr<const credentials> temporary_key::trusting(
    std::vector<key_fingerprint> keys) const {
    credential_parts all;
    all.certificate = parts_->certificate;
    all.trusted_keys = std::move(keys);
    const secret_text secret = to_pem(*parts_->key);
    all.key.assign(secret.text());
    auto made = credentials::try_from_text(all);
    OPENSSL_cleanse(all.key.data(), all.key.size());
    return std::move(made).value();
}

}  // namespace amalgam
