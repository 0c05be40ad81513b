#include <utility>

#include <fmt/format.h>

#include <amalgam/fabric/credentials.hpp>
#include <amalgam/fabric/key_folder.hpp>

#include "fabric/trust/credentials/credential_store.hpp"
#include "fabric/trust/keys/new_file.hpp"
#include "fabric/trust/keys/pre_shared_keys.hpp"

namespace amalgam {

credentials::credentials(std::unique_ptr<detail::credential_store> store) noexcept
    : store_(std::move(store)) {}
credentials::~credentials() = default;

result<std::shared_ptr<const credentials>> credentials::try_from_folder(
    const std::string& folder) try {
    const std::string in = key_folder(folder) + "/";
    const std::string shared = in + detail::pre_shared_file;
    const bool has_certificate = detail::is_there(in + "certificate.pem");
    if (detail::is_there(shared)) {
        if (has_certificate)
            return {errc::invalid,
                    fmt::format("\"{}\" has pre-shared keys beside a certificate, expected one "
                                "kind, as peers prove themselves in one way; keep each in a folder "
                                "of its own",
                                in.substr(0, in.size() - 1))};
        auto store = detail::credential_store::of_files({.shared_keys = shared}, false);
        if (!store) return store.why();
        return std::shared_ptr<const credentials>(new credentials(std::move(*store)));
    }
    auto store = detail::credential_store::of_files({.certificate = in + "certificate.pem",
                                                     .key = in + "key.pem",
                                                     .authority = in + "authority.pem",
                                                     .revoked = in + "revoked.pem"},
                                                    true);
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
