#include "fabric/trust/key_folders/trusted_key_files.hpp"

#include <algorithm>

#include <fmt/format.h>

#include <amalgam/core/status.hpp>

#include "fabric/trust/key_folders/key_files.hpp"
#include "fabric/trust/key_folders/shared_key_files.hpp"
#include "fabric/trust/keys/certificate.hpp"
#include "fabric/trust/keys/pem.hpp"
#include "fabric/trust/keys/trusted_keys.hpp"

namespace amalgam::detail {
namespace {

constexpr const char* first_line =
    "# Keys that are trusted, a fingerprint a line, as `amalgam key show` prints it\n";

/// The text and what it says; nothing but a comment where there is no file.
struct trusted_key_file {
    explicit trusted_key_file(const std::string& in) : path(in + trusted_file) {
        text = is_there(path) ? read_trusted_file(path, kind_of_trusted_file).value()
                              : std::string(first_line);
        keys = trusted_keys_in(text, fmt::format("\"{}\"", path)).value();
    }
    bool has(const key_fingerprint& key) const {
        return std::find(keys.begin(), keys.end(), key) != keys.end();
    }
    void add(const key_fingerprint& key) {
        if (has(key)) return;
        if (keys.size() == most_trusted_keys)
            throw error(errc::invalid,
                        fmt::format("\"{}\" has {} keys, and takes no more; an authority has no "
                                    "such end; example: amalgam key new lab --authority",
                                    path, most_trusted_keys));
        text = with_trusted_key(std::move(text), key);
        keys.push_back(key);
    }
    void remove(const key_fingerprint& key) {
        text = without_trusted_key(text, key);
        std::erase(keys, key);
    }
    void write() const { write_file(path, text, 0644, true); }

    const std::string path;
    std::string text;
    std::vector<key_fingerprint> keys;
};

[[noreturn]] void refuse_two_kinds(const std::string& path) {
    throw error(errc::in_use, fmt::format("\"{}\" exists already, expected a folder without it, as "
                                          "credentials trust either authorities or keys; give "
                                          "the key another name",
                                          path));
}

key_fingerprint fingerprint_meant(const std::string& whose) {
    if (is_meant_as_fingerprint(whose)) return parse_key_fingerprint(whose);
    const std::string path = key_file(whose, "certificate.pem");
    const std::string called = fmt::format("\"{}\"", path);
    const auto all = certificates_in(read_pem_file(path).value(), called).value();
    if (X509_check_ca(all.front().get()) != 1) return fingerprint_of(*all.front());
    throw error(errc::invalid,
                fmt::format("{} is an authority's, expected the fingerprint or certificate of an "
                            "endpoint, as credentials trust either authorities or keys; example: "
                            "amalgam key trust node7 FINGERPRINT",
                            called));
}

}  // namespace

bool has_trusted_keys(const std::string& folder) {
    return is_there(folder + "/" + trusted_file);
}

void refuse_beside_trusted_keys(const std::string& in) {
    if (is_there(in + trusted_file)) refuse_two_kinds(in + trusted_file);
}

void refuse_beside_authorities(const std::string& in) {
    for (const char* each : {"authority.pem", "revoked.pem"})
        if (is_there(in + each)) refuse_two_kinds(in + each);
}

void add_trusted_keys(file_changes& to, const std::string& in,
                      const std::vector<key_fingerprint>& keys) {
    trusted_key_file file(in);
    for (const key_fingerprint& each : keys)
        file.add(each);
    to.write(file.path, file.text, 0644, true);
}

std::string trust_key(const std::string& in, const std::string& whose) {
    const key_fingerprint key = fingerprint_meant(whose);
    const unique_fd locked = lock_folder(in);
    refuse_beside_shared_keys(in + "/");
    refuse_beside_authorities(in + "/");
    if (!is_there(in + "/certificate.pem"))
        throw error(errc::not_found,
                    fmt::format("there is no certificate in \"{}\", expected one that its key "
                                "signed; example: amalgam key new node7 --self-signed",
                                in));
    trusted_key_file file(in + "/");
    if (file.has(key)) return fmt::format("{} trusts the key {} already", in, to_text(key));
    file.add(key);
    file.write();
    return fmt::format("{} trusts the key {}", in, to_text(key));
}

std::string no_longer_trust_key(const std::string& in, const std::string& whose) {
    const key_fingerprint key = fingerprint_meant(whose);
    const unique_fd locked = lock_folder(in);
    trusted_key_file file(in + "/");
    if (!file.has(key))
        throw error(errc::not_found, fmt::format("\"{}\" does not have the key {}; `amalgam key "
                                                 "show {}` lists them",
                                                 file.path, to_text(key), in));
    file.remove(key);
    file.write();
    return fmt::format("{} no longer trusts the key {}, which is in force within a second{}", in,
                       to_text(key), file.keys.empty() ? "; it trusts nobody now" : "");
}

}  // namespace amalgam::detail
