#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/status.hpp>
#include <amalgam/fabric/key_folder.hpp>

#include "fabric/trust/key_folders/key_files.hpp"
#include "fabric/trust/key_folders/shared_key_files.hpp"
#include "fabric/trust/key_folders/trusted_key_files.hpp"
#include "fabric/trust/keys/certificate_builder.hpp"
#include "fabric/trust/keys/new_file.hpp"
#include "fabric/trust/keys/pem.hpp"
#include "fabric/trust/keys/trusted_keys.hpp"
#include "fabric/trust/openssl/openssl_library.hpp"

namespace amalgam {
namespace {

using namespace detail;

constexpr unsigned default_days = 365;
constexpr unsigned most_days = 36500;

wall_time days_from_now(unsigned days) {
    if (days == 0 || days > most_days)
        throw error(errc::invalid,
                    fmt::format("{} days are not a validity, expected 1 to {}", days, most_days));
    return std::chrono::system_clock::now() + std::chrono::hours(24) * days;
}

/// Before anything is written, so that a folder is not left half replaced.
void refuse_to_replace(const std::string& folder, std::initializer_list<const char*> files) {
    for (const char* each : files)
        if (is_there(folder + each))
            throw error(errc::in_use,
                        fmt::format("\"{}{}\" exists already and is not replaced without being "
                                    "told to; example: --force",
                                    folder, each));
}

std::string names_in_words(const certified_names& names) {
    const std::string hosts = names.hosts.empty()
                                  ? std::string("no host, so that it can only connect")
                                  : fmt::format("hosts {}", fmt::join(names.hosts, ", "));
    const std::string groups = names.groups.empty()
                                   ? std::string("no group")
                                   : fmt::format("groups {}", fmt::join(names.groups, ", "));
    return fmt::format("{}: {}; {}", names.name, hosts, groups);
}

/// Not beyond the authority's own end, unless that was asked for.
wall_time end_of(std::optional<unsigned> days, X509& authority) {
    const wall_time last = time_of(X509_get0_notAfter(&authority));
    const wall_time end = days_from_now(days.value_or(default_days));
    if (days && end > last)
        throw error(errc::invalid,
                    fmt::format("{} days are longer than the authority itself is valid, until {}",
                                *days, to_text(last)));
    return std::min(end, last);
}

/// A request, and what of it is certified.
struct asked_for {
    x509_request_ptr request;
    certified_names names;
};

asked_for read_request(const std::string& path, const signing_options& how) {
    const std::string called = fmt::format("\"{}\"", path);
    asked_for asked{request_in(read_pem_file(path).value(), called).value(), {}};
    asked.names = names_in(*asked.request, called);
    if (how.hosts) asked.names.hosts = *how.hosts;
    if (how.groups) asked.names.groups = *how.groups;
    check_names(asked.names);
    return asked;
}

bool is_authority(const std::string& certificate_path) {
    if (!is_there(certificate_path)) return false;
    const auto text = read_pem_file(certificate_path);
    if (!text) return false;
    const auto shown = certificates_in(*text, certificate_path);
    return shown && X509_check_ca(shown->front().get()) == 1;
}

/// Nobody means that, however often told to replace: whom it certified would be lost with it.
void refuse_to_replace_authority(const std::string& folder) {
    const std::string path = folder + "/certificate.pem";
    if (!is_authority(path)) return;
    throw error(errc::invalid,
                fmt::format("\"{}\" is the certificate of an authority, which would be replaced, "
                            "expected a folder of the key's own; example: ./node7",
                            path));
}

/// Above the number of any list of this authority that an endpoint may still have.
std::uint64_t number_of_a_new_beginning() {
    return static_cast<std::uint64_t>(
        std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()));
}

void check_self_signed(const key_request& what) {
    const bool fits = what.self_signed ? what.groups.empty() && !what.authority && !what.shared
                                       : what.trusted.empty();
    if (fits) return;
    throw error(errc::invalid,
                "a self-signed key is trusted for its fingerprint, and trusts keys by theirs, "
                "expected no group, as nobody vouches for it, and neither an authority nor a "
                "pre-shared key; example: amalgam key new node7 --self-signed");
}

/// An authority trusts nobody. Endpoints take over its revoked.pem, and would find in it the list
/// of an authority that they do not know.
void refuse_to_trust_in_authority(const std::string& folder) {
    if (!is_authority(folder + "/certificate.pem")) return;
    throw error(errc::invalid,
                fmt::format("\"{}\" is an authority, which trusts nobody, expected the key of an "
                            "endpoint that does; example: amalgam key trust node7 lab",
                            folder));
}

}  // namespace

std::string key_folder(std::string_view name_or_path) {
    if (name_or_path.empty())
        throw error(errc::invalid,
                    "the name of a folder of keys is empty, expected a name or a path; example: "
                    "node7, or ./node7");
    if (name_or_path.find('/') != name_or_path.npos) {
        while (name_or_path.size() > 1 && name_or_path.ends_with('/'))
            name_or_path.remove_suffix(1);
        return std::string(name_or_path);
    }
    if (name_or_path == "." || name_or_path == "..") return std::string(name_or_path);
    const char* config = std::getenv("XDG_CONFIG_HOME");
    if (config != nullptr && *config == '/')
        return fmt::format("{}/amalgam/keys/{}", config, name_or_path);
    const char* home = std::getenv("HOME");
    if (home != nullptr && *home == '/')
        return fmt::format("{}/.config/amalgam/keys/{}", home, name_or_path);
    throw error(errc::invalid,
                fmt::format("there is no home folder for the key \"{}\" (HOME is not "
                            "set), expected a path; example: ./{}",
                            name_or_path, name_or_path));
}

void make_key(const std::string& folder, const key_request& what) {
    find_openssl().value();
    const no_errors_left at_the_end;
    const certified_names names{what.name, what.hosts, what.groups};
    check_names(names);
    check_self_signed(what);
    if (what.shared) return make_shared_key(folder, what);
    if (what.authority && !(what.hosts.empty() && what.groups.empty()))
        throw error(errc::invalid,
                    "an authority has no hosts and groups, as it only signs; leave out --host and "
                    "--group, or --authority");
    const wall_time end = days_from_now(what.days);
    const std::string in = key_folder(folder) + "/";
    make_folder(in.substr(0, in.size() - 1));
    const unique_fd locked = lock_folder(in);
    if (!what.authority) refuse_to_replace_authority(in.substr(0, in.size() - 1));
    if (!what.overwrite) refuse_to_replace(in, {"key.pem", "certificate.pem", "request.pem"});
    refuse_beside_shared_keys(in);
    what.self_signed ? refuse_beside_authorities(in) : refuse_beside_trusted_keys(in);
    const pkey_ptr key = generate_key(what.algorithm);
    // First goes what would vouch for the key that goes.
    file_changes changes;
    const bool certifies_itself = what.authority || what.self_signed;
    changes.remove(in + (certifies_itself ? "request.pem" : "certificate.pem"));
    changes.write(in + "key.pem", to_pem(*key).text(), 0600, what.overwrite);
    if (what.authority) {
        const x509_ptr certificate = make_authority(what.name, *key, end);
        write_list(changes, in, *make_list(nullptr, nullptr, *certificate, *key));
        changes.write(in + "certificate.pem", to_pem(*certificate), 0644, what.overwrite);
    } else if (what.self_signed) {
        add_trusted_keys(changes, in, what.trusted);
        changes.write(in + "certificate.pem", to_pem(*make_self_signed(names, *key, end)), 0644,
                      what.overwrite);
    } else {
        changes.write(in + "request.pem", to_pem(*make_request(names, *key)), 0644, what.overwrite);
    }
    changes.finish();
}

void require_authority(const std::string& authority, std::optional<unsigned> days) {
    find_openssl().value();
    const no_errors_left at_the_end;
    (void)end_of(days, *authority_files::read(authority).certificate);
}

std::string sign_key(const std::string& file_or_folder, const std::string& authority,
                     const signing_options& how) {
    find_openssl().value();
    const no_errors_left at_the_end;
    const std::string request_path = key_file(file_or_folder, "request.pem");
    const std::string in =
        how.output.empty() ? folder_of_file(request_path) : key_folder(how.output);
    // Locked first, as another process may be replacing the key there, and with it the request.
    unique_fd locked;
    if (is_folder(in)) locked = lock_folder(in);
    const asked_for asked = read_request(request_path, how);
    const authority_files by = authority_files::read(authority);
    const wall_time end = end_of(how.days, *by.certificate);
    if (!locked) {
        make_folder(in);
        locked = lock_folder(in);
    }
    if (!how.overwrite) refuse_to_replace(in + "/", {"certificate.pem"});
    refuse_to_replace_authority(in);
    refuse_beside_shared_keys(in + "/");
    refuse_beside_trusted_keys(in + "/");
    const x509_ptr made = make_certificate(asked.names, *X509_REQ_get0_pubkey(asked.request.get()),
                                           end, *by.certificate, *by.key);
    trusted_files trusted(in);
    trusted.add(*by.certificate);
    if (by.list != nullptr) trusted.take_over(*by.list);
    file_changes changes;
    trusted.write_changes(changes);
    changes.write(in + "/certificate.pem", to_pem(*made), 0644, how.overwrite);
    changes.finish();
    return fmt::format("certified {}; until {}; serial {}", names_in_words(asked.names),
                       to_text(end), serial_of(X509_get0_serialNumber(made.get())));
}

std::string trust_authority(const std::string& folder, const std::string& file_or_folder) {
    find_openssl().value();
    const no_errors_left at_the_end;
    const std::string in = key_folder(folder);
    if (is_meant_as_fingerprint(file_or_folder) || has_trusted_keys(in)) {
        refuse_to_trust_in_authority(in);
        return trust_key(in, file_or_folder);
    }
    if (has_shared_keys(in)) return accept_shared_key(in, file_or_folder);
    const std::string path = key_file(file_or_folder, "certificate.pem");
    const std::string called = fmt::format("\"{}\"", path);
    const std::string text = read_pem_file(path).value();
    auto lists = revocation_lists_of(text, called);
    std::vector<x509_ptr> certificates;
    if (text.find("CERTIFICATE-----") != text.npos || lists.empty())
        certificates = certificates_in(text, called).value();
    std::string trusted;
    for (const x509_ptr& each : certificates) {
        check_authority(*each, called);
        trusted += (trusted.empty() ? "" : ", ") + to_line(X509_get_subject_name(each.get()));
    }
    if (path != file_or_folder && !certificates.empty())
        if (auto beside = revocation_lists_beside(path, *certificates.front()); !beside.empty())
            lists = std::move(beside);
    const unique_fd locked = lock_folder(in);
    refuse_to_trust_in_authority(in);
    trusted_files files(in);
    for (const x509_ptr& each : certificates)
        files.add(*each);
    for (const x509_crl_ptr& each : lists)
        files.take_over(*each);
    file_changes changes;
    files.write_changes(changes);
    changes.finish();
    if (trusted.empty())
        return fmt::format("{} takes over the revocation list of {}", in,
                           to_line(X509_CRL_get_issuer(lists.front().get())));
    return fmt::format("{} trusts who was certified by {}", in, trusted);
}

std::string revoke_key(const std::string& certificate_or_serial, const std::string& authority) {
    find_openssl().value();
    const no_errors_left at_the_end;
    const std::string in = key_folder(authority);
    if (has_shared_keys(in)) return remove_shared_key(in, certificate_or_serial);
    if (has_trusted_keys(in)) return no_longer_trust_key(in, certificate_or_serial);
    const unique_fd locked = lock_folder(in);
    const authority_files by = authority_files::read(authority);
    const openssl_ptr<ASN1_STRING> serial =
        serial_to_revoke(certificate_or_serial, *by.certificate);
    const std::string number = serial_of(serial.get());
    X509_REVOKED* before = nullptr;
    if (by.list != nullptr && X509_CRL_get0_by_serial(by.list.get(), &before, serial.get()) == 1)
        return fmt::format("{} is revoked already", number);
    file_changes changes;
    write_list(changes, in + "/",
               *make_list(by.list.get(), serial.get(), *by.certificate, *by.key,
                          by.list == nullptr ? number_of_a_new_beginning() : 1));
    changes.finish();
    return fmt::format(
        "revoked the serial number {}; give {}/revoked.pem to every endpoint, which is in force "
        "within a second; example: amalgam key trust node7 {}/revoked.pem",
        number, in, in);
}

}  // namespace amalgam
