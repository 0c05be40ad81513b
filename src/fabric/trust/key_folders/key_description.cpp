#include <algorithm>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include <amalgam/core/status.hpp>
#include <amalgam/fabric/key_folder.hpp>

#include "fabric/trust/key_folders/key_files.hpp"
#include "fabric/trust/keys/certificate_builder.hpp"
#include "fabric/trust/keys/new_file.hpp"
#include "fabric/trust/keys/pem.hpp"
#include "fabric/trust/keys/pre_shared_keys.hpp"
#include "fabric/trust/openssl/openssl_library.hpp"

namespace amalgam {
namespace {

using namespace detail;

std::string row(std::string_view title, std::string_view value) {
    return fmt::format("  {:<12} {}\n", title, value);
}

std::string list_of(const std::vector<std::string>& all) {
    return all.empty() ? "none" : fmt::format("{}", fmt::join(all, ", "));
}

std::string key_kind(EVP_PKEY& key) {
    const char* kind = EVP_PKEY_get0_type_name(&key);
    return fmt::format("{}, {} bits", kind == nullptr ? "unknown" : kind, EVP_PKEY_get_bits(&key));
}

std::string description_of(X509& certificate) {
    const bool signs = X509_check_ca(&certificate) == 1;
    std::string text = signs ? "authority\n" : "certificate\n";
    const auto who = identity_of(certificate);
    text += row("name", who ? who->name : who.sentence());
    if (!signs) {
        text += row("hosts", list_of(hosts_of(certificate)));
        text += row("groups", who ? list_of(who->groups) : "none");
    }
    text += row("certified by", to_line(X509_get_issuer_name(&certificate)));
    const auto valid = check_time(certificate, std::chrono::system_clock::now());
    text +=
        row("valid", fmt::format("{} to {}{}", to_text(time_of(X509_get0_notBefore(&certificate))),
                                 to_text(time_of(X509_get0_notAfter(&certificate))),
                                 valid ? "" : " (not now)"));
    text += row("serial", serial_of(X509_get0_serialNumber(&certificate)));
    if (EVP_PKEY* const key = X509_get0_pubkey(&certificate)) {
        text += row("key", key_kind(*key));
        text += row("fingerprint", to_text(fingerprint_of(certificate)));
    }
    return text;
}

std::string description_of(X509_REQ& request, const std::string& called) {
    const certified_names names = names_in(request, called);
    EVP_PKEY& key = *X509_REQ_get0_pubkey(&request);
    return "request\n" + row("name", names.name) + row("hosts", list_of(names.hosts)) +
           row("groups", list_of(names.groups)) + row("key", key_kind(key)) +
           row("fingerprint", to_text(fingerprint_of(key)));
}

std::string description_of(X509_CRL& list) {
    std::string text = "revocation list\n";
    text += row("of", to_line(X509_CRL_get_issuer(&list)));
    const ASN1_TIME* const end = X509_CRL_get0_nextUpdate(&list);
    text +=
        row("in force", fmt::format("{} to {}", to_text(time_of(X509_CRL_get0_lastUpdate(&list))),
                                    end == nullptr ? "its replacement" : to_text(time_of(end))));
    auto* const revoked = X509_CRL_get_REVOKED(&list);
    const int count = std::max(0, sk_X509_REVOKED_num(revoked));
    if (count == 0) text += row("revoked", "none");
    for (int i = 0; i < count; ++i) {
        const X509_REVOKED* const one = sk_X509_REVOKED_value(revoked, i);
        text +=
            row("revoked", fmt::format("{} on {}", serial_of(X509_REVOKED_get0_serialNumber(one)),
                                       to_text(time_of(X509_REVOKED_get0_revocationDate(one)))));
    }
    return text;
}

std::string description_of_key(const std::string& path) {
    const secret_text secret = read_secret_file(path).value();
    const pkey_ptr key = private_key_in(secret.text(), fmt::format("\"{}\"", path)).value();
    return "private key\n" + row("key", key_kind(*key)) +
           row("fingerprint", to_text(fingerprint_of(*key)));
}

std::string description_of_shared_keys(const std::string& path) {
    const auto keys = pre_shared_keys::in_file(path).value();
    std::string text = "pre-shared keys\n";
    for (const pre_shared_keys::key& each : keys.all())
        text += row(&each == &keys.own() ? "own" : "accepts",
                    fmt::format("{}, {} bits", each.name, 8 * each.secret.size()));
    return text;
}

/// Of everything in the text, in the order of kinds.
std::string description_of_file(const std::string& path) {
    if (path.ends_with(".keys")) return description_of_shared_keys(path);
    if (path.ends_with("key.pem")) return description_of_key(path);
    const std::string called = fmt::format("\"{}\"", path);
    const std::string text = read_pem_file(path).value();
    const auto has = [&](const char* end) { return text.find(end) != text.npos; };
    if (has("PRIVATE KEY-----")) return description_of_key(path);
    std::string all;
    if (has("BEGIN CERTIFICATE-----") || has("TRUSTED CERTIFICATE-----")) {
        const auto certificates = certificates_in(text, called).value();
        for (const x509_ptr& each : certificates)
            all += description_of(*each);
    }
    if (has("CERTIFICATE REQUEST-----"))
        all += description_of(*request_in(text, called).value(), called);
    const auto lists = revocation_lists_of(text, called);
    for (const x509_crl_ptr& each : lists)
        all += description_of(*each);
    if (all.empty())
        throw error(errc::invalid,
                    fmt::format("{} is not in PEM, expected a certificate, a key, a request or a "
                                "revocation list",
                                called));
    return all;
}

}  // namespace

std::string describe_key(const std::string& file_or_folder) {
    find_openssl().value();
    const no_errors_left at_the_end;
    if (names_a_file(file_or_folder)) return description_of_file(file_or_folder);
    const std::string in = key_folder(file_or_folder) + "/";
    std::string all;
    for (const char* each : {"key.pem", "certificate.pem", "request.pem", "authority.pem",
                             "revoked.pem", pre_shared_file})
        if (is_there(in + each))
            all += fmt::format("{}{}: {}", in, each, description_of_file(in + each));
    if (!all.empty()) return all;
    throw error(errc::not_found,
                fmt::format("there is no key in \"{}\", expected a folder that `amalgam key new` "
                            "made",
                            in.substr(0, in.size() - 1)));
}

}  // namespace amalgam
