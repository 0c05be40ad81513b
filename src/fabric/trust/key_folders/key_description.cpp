#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <amalgam/core/status.hpp>
#include <amalgam/fabric/key_folder.hpp>

#include "fabric/trust/key_folders/key_files.hpp"
#include "fabric/trust/keys/certificate_builder.hpp"
#include "fabric/trust/keys/new_file.hpp"
#include "fabric/trust/keys/pem.hpp"
#include "fabric/trust/keys/pre_shared_keys.hpp"
#include "fabric/trust/keys/trusted_keys.hpp"
#include "fabric/trust/openssl/openssl_library.hpp"

namespace amalgam {
namespace {

using namespace detail;

std::optional<wall_time> time_if_any(const ASN1_TIME* time) {
    if (time == nullptr) return {};
    return time_of(time);
}

void describe_public_key(key_part& part, EVP_PKEY& key) {
    const char* const kind = EVP_PKEY_get0_type_name(&key);
    part.algorithm = kind == nullptr ? "unknown" : kind;
    part.key_bits = static_cast<std::uint32_t>(std::max(0, EVP_PKEY_get_bits(&key)));
}

key_part part_of(X509& certificate) {
    key_part part;
    part.kind =
        X509_check_ca(&certificate) == 1 ? key_part_kind::authority : key_part_kind::certificate;
    if (auto who = identity_of(certificate)) {
        part.name = who->name;
        if (part.kind == key_part_kind::certificate) part.groups = who->groups;
    } else {
        part.refusal = who.sentence();
    }
    if (part.kind == key_part_kind::certificate) part.hosts = hosts_of(certificate);
    part.issuer = to_line(X509_get_issuer_name(&certificate));
    part.not_before = time_of(X509_get0_notBefore(&certificate));
    part.not_after = time_of(X509_get0_notAfter(&certificate));
    part.valid_now = bool(check_time(certificate, std::chrono::system_clock::now()));
    part.serial = serial_of(X509_get0_serialNumber(&certificate));
    if (EVP_PKEY* const key = X509_get0_pubkey(&certificate)) {
        describe_public_key(part, *key);
        part.fingerprint = fingerprint_of(certificate);
    }
    return part;
}

key_part part_of(X509_REQ& request, const std::string& called) {
    certified_names names = names_in(request, called);
    EVP_PKEY& key = *X509_REQ_get0_pubkey(&request);
    key_part part;
    part.kind = key_part_kind::request;
    part.name = std::move(names.name);
    part.hosts = std::move(names.hosts);
    part.groups = std::move(names.groups);
    describe_public_key(part, key);
    part.fingerprint = fingerprint_of(key);
    return part;
}

key_part part_of(X509_CRL& list) {
    key_part part;
    part.kind = key_part_kind::revocation_list;
    part.issuer = to_line(X509_CRL_get_issuer(&list));
    part.not_before = time_of(X509_CRL_get0_lastUpdate(&list));
    part.not_after = time_if_any(X509_CRL_get0_nextUpdate(&list));
    auto* const revoked = X509_CRL_get_REVOKED(&list);
    const int count = std::max(0, sk_X509_REVOKED_num(revoked));
    for (int i = 0; i < count; ++i) {
        const X509_REVOKED* const one = sk_X509_REVOKED_value(revoked, i);
        part.revoked.push_back({serial_of(X509_REVOKED_get0_serialNumber(one)),
                                time_of(X509_REVOKED_get0_revocationDate(one))});
    }
    return part;
}

key_part private_part_of(const std::string& path) {
    const secret_text secret = read_secret_file(path).value();
    const pkey_ptr key = private_key_in(secret.text(), fmt::format("\"{}\"", path)).value();
    key_part part;
    part.kind = key_part_kind::private_key;
    describe_public_key(part, *key);
    part.fingerprint = fingerprint_of(*key);
    return part;
}

std::vector<key_part> shared_parts_of(const std::string& path) {
    const auto keys = pre_shared_keys::in_file(path).value();
    std::vector<key_part> all;
    for (const pre_shared_keys::key& each : keys.all()) {
        key_part& part = all.emplace_back();
        part.kind = key_part_kind::pre_shared_key;
        part.name = each.name;
        part.own = &each == &keys.own();
        part.key_bits = static_cast<std::uint32_t>(8 * each.secret.size());
    }
    return all;
}

std::vector<key_part> trusted_parts_of(const std::string& path) {
    const std::string text = read_pem_file(path, kind_of_trusted_file).value();
    const auto keys = trusted_keys_in(text, fmt::format("\"{}\"", path)).value();
    std::vector<key_part> all;
    for (const key_fingerprint& each : keys) {
        key_part& part = all.emplace_back();
        part.kind = key_part_kind::trusted_key;
        part.fingerprint = each;
    }
    return all;
}

/// Of everything in the text, in the order of kinds.
std::vector<key_part> public_parts_of(const std::string& text, const std::string& called) {
    const auto has = [&](const char* end) { return text.find(end) != text.npos; };
    std::vector<key_part> all;
    if (has("BEGIN CERTIFICATE-----") || has("TRUSTED CERTIFICATE-----")) {
        const auto certificates = certificates_in(text, called).value();
        for (const x509_ptr& each : certificates)
            all.push_back(part_of(*each));
    }
    if (has("CERTIFICATE REQUEST-----"))
        all.push_back(part_of(*request_in(text, called).value(), called));
    const auto lists = revocation_lists_of(text, called);
    for (const x509_crl_ptr& each : lists)
        all.push_back(part_of(*each));
    if (all.empty())
        throw error(errc::invalid,
                    fmt::format("{} is not in PEM, expected a certificate, a key, a request or a "
                                "revocation list",
                                called));
    return all;
}

std::vector<key_part> parts_of_file(const std::string& path) {
    if (path.ends_with(trusted_file)) return trusted_parts_of(path);
    if (path.ends_with(".keys")) return shared_parts_of(path);
    std::vector<key_part> all;
    if (!path.ends_with("key.pem")) {
        const std::string text = read_pem_file(path).value();
        if (text.find("PRIVATE KEY-----") == text.npos)
            return public_parts_of(text, fmt::format("\"{}\"", path));
    }
    all.push_back(private_part_of(path));
    return all;
}

std::string row(std::string_view title, std::string_view value) {
    return fmt::format("  {:<12} {}\n", title, value);
}

std::string list_of(const std::vector<std::string>& all) {
    return all.empty() ? "none" : fmt::format("{}", fmt::join(all, ", "));
}

std::string times_of(const key_part& part) {
    return fmt::format("{} to {}", to_text(*part.not_before),
                       part.not_after ? to_text(*part.not_after) : "its replacement");
}

std::string rows_of_shared_key(const key_part& part) {
    return row(part.own ? "own" : "accepts", fmt::format("{}, {} bits", part.name, part.key_bits));
}

std::string rows_of_list(const key_part& part) {
    std::string text = row("of", part.issuer) + row("in force", times_of(part));
    if (part.revoked.empty()) text += row("revoked", "none");
    for (const revoked_certificate& each : part.revoked)
        text += row("revoked", fmt::format("{} on {}", each.serial, to_text(each.when)));
    return text;
}

std::string rows_of(const key_part& part) {
    if (part.kind == key_part_kind::pre_shared_key) return rows_of_shared_key(part);
    if (part.kind == key_part_kind::trusted_key) return row("trusts", to_text(*part.fingerprint));
    if (part.kind == key_part_kind::revocation_list) return rows_of_list(part);
    std::string text;
    if (part.kind != key_part_kind::private_key)
        text += row("name", part.refusal.empty() ? part.name : part.refusal);
    if (part.kind == key_part_kind::certificate || part.kind == key_part_kind::request)
        text += row("hosts", list_of(part.hosts)) + row("groups", list_of(part.groups));
    if (part.not_before)
        text += row("certified by", part.issuer) +
                row("valid", times_of(part) + (part.valid_now ? "" : " (not now)")) +
                row("serial", part.serial);
    if (part.fingerprint)
        text += row("key", fmt::format("{}, {} bits", part.algorithm, part.key_bits)) +
                row("fingerprint", to_text(*part.fingerprint));
    return text;
}

/// The file of trusted keys, if it is there and has none, so that no part tells of it.
std::string list_without_keys(const std::string& file_or_folder) {
    const std::string path = key_file(file_or_folder, trusted_file);
    const bool is_empty =
        path.ends_with(trusted_file) && is_there(path) && trusted_parts_of(path).empty();
    return is_empty ? path : std::string();
}

}  // namespace

std::string_view name(key_part_kind kind) noexcept {
    switch (kind) {
        case key_part_kind::private_key:
            return "private key";
        case key_part_kind::certificate:
            return "certificate";
        case key_part_kind::authority:
            return "authority";
        case key_part_kind::request:
            return "request";
        case key_part_kind::revocation_list:
            return "revocation list";
        case key_part_kind::pre_shared_key:
            return "pre-shared key";
        case key_part_kind::trusted_key:
            return "trusted key";
    }
    return "unknown";
}

std::vector<key_part> read_key_parts(const std::string& file_or_folder) {
    find_openssl().value();
    const no_errors_left at_the_end;
    std::vector<key_part> all;
    const auto add = [&](const std::string& path) {
        for (key_part& each : parts_of_file(path)) {
            each.file = path;
            all.push_back(std::move(each));
        }
    };
    if (names_a_file(file_or_folder)) {
        add(file_or_folder);
        return all;
    }
    const std::string in = key_folder(file_or_folder) + "/";
    for (const char* each : {"key.pem", "certificate.pem", "request.pem", "authority.pem",
                             "revoked.pem", trusted_file, pre_shared_file})
        if (is_there(in + each)) add(in + each);
    if (!all.empty()) return all;
    throw error(errc::not_found,
                fmt::format("there is no key in \"{}\", expected a folder that `amalgam key new` "
                            "made",
                            in.substr(0, in.size() - 1)));
}

std::string describe_key(const std::string& file_or_folder) {
    const bool tells_files = !names_a_file(file_or_folder);
    std::string text, file;
    for (const key_part& each : read_key_parts(file_or_folder)) {
        const bool first = each.file != file;
        if (tells_files && first) text += each.file + ": ";
        file = each.file;
        // Those of one file are rows of one list.
        const bool is_row =
            each.kind == key_part_kind::pre_shared_key || each.kind == key_part_kind::trusted_key;
        if (!is_row || first) text += fmt::format("{}{}\n", name(each.kind), is_row ? "s" : "");
        text += rows_of(each);
    }
    if (const std::string empty = list_without_keys(file_or_folder); !empty.empty())
        text += (tells_files ? empty + ": " : std::string()) + "trusted keys\n" +
                row("trusts", "nobody");
    return text;
}

}  // namespace amalgam
