#include <utility>

#include <fmt/format.h>

#include <amalgam/fabric/credentials.hpp>
#include <amalgam/fabric/key_folder.hpp>

#include "fabric/trust/credentials/credential_store.hpp"
#include "fabric/trust/keys/certificate.hpp"
#include "fabric/trust/keys/new_file.hpp"
#include "fabric/trust/keys/pem.hpp"
#include "fabric/trust/keys/pre_shared_keys.hpp"
#include "fabric/trust/keys/trusted_keys.hpp"
#include "fabric/trust/openssl/openssl_library.hpp"

namespace amalgam {
namespace {

/// Of what a folder has, which ends in "/": one way to prove oneself, and one kind of trust.
result<void> check_one_kind(const std::string& in) {
    const auto has = [&](const char* file) { return detail::is_there(in + file); };
    const std::string folder = in.substr(0, in.size() - 1);
    if (has(detail::pre_shared_file) && has("certificate.pem"))
        return {
            errc::invalid,
            fmt::format("\"{}\" has pre-shared keys beside a certificate, expected one kind, as "
                        "peers prove themselves in one way; keep each in a folder of its own",
                        folder)};
    if (!has(detail::trusted_file)) return {};
    for (const char* other : {"authority.pem", "revoked.pem", detail::pre_shared_file})
        if (has(other))
            return {
                errc::invalid,
                fmt::format("\"{}\" has {} beside {}, expected one of them, as credentials have "
                            "one kind of trust; keep each in a folder of its own",
                            folder, detail::trusted_file, other)};
    return {};
}

/// Whether a key signed this certificate of its own, which makes no authority of it.
bool is_of_self_signed_key(const std::string& path) {
    if (!detail::find_openssl()) return false;
    const auto text = detail::read_pem_file(path);
    if (!text) return false;
    const auto shown = detail::certificates_in(*text, path);
    return shown && detail::is_self_signed(*shown->front()) &&
           X509_check_ca(shown->front().get()) != 1;
}

/// Of a folder that has no trusted.keys: whether it should.
result<void> check_trusts_authorities(const std::string& in) {
    if (detail::is_there(in + "authority.pem") || !is_of_self_signed_key(in + "certificate.pem"))
        return {};
    const std::string folder = in.substr(0, in.size() - 1);
    return {errc::not_found,
            fmt::format("\"{}\" has a self-signed key and lacks {}, expected the fingerprints of "
                        "the keys that it trusts; for each, which makes the file again: amalgam "
                        "key trust {} FINGERPRINT",
                        folder, detail::trusted_file, folder)};
}

}  // namespace

credentials::credentials(std::unique_ptr<detail::credential_store> store) noexcept
    : store_(std::move(store)) {}
credentials::~credentials() = default;

result<std::shared_ptr<const credentials>> credentials::try_from_folder(
    const std::string& folder) try {
    const std::string in = key_folder(folder) + "/";
    if (const auto good = check_one_kind(in); !good) return good.why();
    if (const std::string shared = in + detail::pre_shared_file; detail::is_there(shared))
        return try_from_files({.shared_keys = shared});
    credential_parts paths{.certificate = in + "certificate.pem", .key = in + "key.pem"};
    if (paths.trusted_list = in + detail::trusted_file; detail::is_there(paths.trusted_list))
        return try_from_files(paths);
    paths.trusted_list.clear();
    if (const auto good = check_trusts_authorities(in); !good) return good.why();
    paths.authority = in + "authority.pem";
    paths.revoked = in + "revoked.pem";
    auto store = detail::credential_store::of_files(paths, true);
    if (!store) return store.why();
    return std::shared_ptr<const credentials>(new credentials(std::move(*store)));
} catch (const error& no_folder) {
    return {no_folder.code().code, no_folder.what()};
}

result<std::shared_ptr<const credentials>> credentials::try_from_files(
    const credential_parts& paths) {
    auto store = detail::credential_store::of_files(paths, false);
    if (!store) return store.why();
    return std::shared_ptr<const credentials>(new credentials(std::move(*store)));
}

result<std::shared_ptr<const credentials>> credentials::try_from_text(const credential_parts& pem) {
    auto store = detail::credential_store::of_text(pem);
    if (!store) return store.why();
    return std::shared_ptr<const credentials>(new credentials(std::move(*store)));
}

std::shared_ptr<const credentials> credentials::from_folder(const std::string& folder) {
    return try_from_folder(folder).value();
}
std::shared_ptr<const credentials> credentials::from_files(const credential_parts& paths) {
    return try_from_files(paths).value();
}
std::shared_ptr<const credentials> credentials::from_text(const credential_parts& pem) {
    return try_from_text(pem).value();
}

result<void> credentials::reload() const {
    return store_->reload();
}
identity credentials::self() const {
    return store_->in_force()->self();
}
std::chrono::system_clock::time_point credentials::expires() const {
    return store_->in_force()->expires();
}
std::string credentials::explain() const {
    return store_->in_force()->explain();
}

}  // namespace amalgam
