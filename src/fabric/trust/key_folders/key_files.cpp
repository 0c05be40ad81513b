#include "fabric/trust/key_folders/key_files.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <new>
#include <utility>

#include <fmt/format.h>
#include <openssl/err.h>

#include <amalgam/core/detail/printable.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/fabric/key_folder.hpp>

#include "fabric/trust/keys/certificate_builder.hpp"
#include "fabric/trust/keys/new_file.hpp"
#include "fabric/trust/keys/pem.hpp"

namespace amalgam::detail {
namespace {

constexpr std::size_t most_serial_digits = 40;  // 20 bytes, by RFC 5280.

std::string in_quotes(const std::string& path) {
    return fmt::format("\"{}\"", path);
}

bool is_by(X509& certificate, X509& authority) {
    const bool by =
        X509_NAME_cmp(X509_get_issuer_name(&certificate), X509_get_subject_name(&authority)) == 0 &&
        X509_verify(&certificate, X509_get0_pubkey(&authority)) == 1;
    clear_openssl_errors();
    return by;
}

/// What a file has, nothing if there is none.
std::string text_if_there(const std::string& path) {
    return is_there(path) ? read_pem_file(path).value() : std::string();
}

bool is_existing_key(const std::string& name) {
    try {
        return is_folder(key_folder(name));
    } catch (const error&) {
        return false;
    }
}

/// 0 if none was noted.
std::uint64_t noted_list_number(const std::string& in) {
    const std::string path = in + list_number_file, text = text_if_there(path);
    std::uint64_t number = 0;
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (is_there(path) &&
        (fault != std::errc{} || end == text.data() + text.size() || *end != '\n'))
        throw error(errc::invalid,
                    fmt::format("{} is not the number of a revocation list, expected one in a "
                                "line, as `amalgam key revoke` writes it",
                                in_quotes(path)));
    return number;
}

/// Going on without its newest list would take back what was revoked.
x509_crl_ptr own_list(const std::string& in, X509& authority) {
    const std::string path = in + "revoked.pem";
    // Before the list, which is written first: another process may be revoking something.
    const std::uint64_t newest = noted_list_number(in);
    x509_crl_ptr own;
    if (is_there(path)) {
        for (x509_crl_ptr& each :
             revocation_lists_of(read_trusted_file(path).value(), in_quotes(path)))
            if (is_list_of(*each, authority) && (own == nullptr || is_older(*own, *each)))
                own = std::move(each);
        if (own == nullptr)
            throw error(errc::invalid,
                        fmt::format("{} is not the revocation list of {}", in_quotes(path),
                                    in_quotes(in + "certificate.pem")));
    }
    const std::uint64_t number = own ? number_of(*own) : 0;
    if (number >= newest) return own;
    throw error(errc::invalid,
                fmt::format("{} {}, by which what was revoked would be let in again; expected the "
                            "newest revocation list of this authority, number {}, from a copy or "
                            "from an endpoint that has it; example: cp node7/revoked.pem {}",
                            in_quotes(path), own ? fmt::format("is number {}", number) : "is gone",
                            newest, path));
}

bool is_hexadecimal(const std::string& text) {
    return !text.empty() && text.size() <= most_serial_digits &&
           text.find_first_not_of("0123456789abcdefABCDEF") == text.npos &&
           text.find_first_not_of('0') != text.npos;
}

/// Names like "ada" and "dee" are hexadecimal, too, and their keys may be elsewhere: the number ADA
/// would be revoked, and nobody told that Ada is not.
void refuse_what_may_be_a_name(const std::string& hexadecimal) {
    constexpr std::size_t longer_than_names = 16;
    if (hexadecimal.size() >= longer_than_names || hexadecimal.starts_with('0')) return;
    throw error(errc::invalid,
                fmt::format("\"{}\" is not the name of a key that is here, and short for a serial "
                            "number, expected the certificate, or the number with a 0 before it; "
                            "example: 0{}",
                            hexadecimal, hexadecimal));
}

}  // namespace

bool names_a_file(const std::string& file_or_folder) {
    const bool may = file_or_folder.ends_with(".pem") || file_or_folder.ends_with(".keys") ||
                     (file_or_folder.find('/') != file_or_folder.npos && is_there(file_or_folder));
    if (!may || is_folder(file_or_folder)) return false;
    return is_there(file_or_folder) || !is_existing_key(file_or_folder);  // A key named "a.pem".
}

std::string key_file(const std::string& file_or_folder, const char* in_folder) {
    if (names_a_file(file_or_folder)) return file_or_folder;
    return key_folder(file_or_folder) + "/" + in_folder;
}

std::string folder_of_file(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    return slash == path.npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

void check_authority(X509& certificate, const std::string& called) {
    if (X509_check_ca(&certificate) == 1) return;
    throw error(
        errc::invalid,
        fmt::format("{}: the certificate of {} is not an authority's, expected one that may "
                    "sign others; example: amalgam key new lab --authority",
                    called, to_line(X509_get_subject_name(&certificate))));
}

std::vector<x509_crl_ptr> revocation_lists_of(const std::string& text, const std::string& called) {
    if (text.find("X509 CRL-----") == text.npos) return {};
    return revocation_lists_in(text, called).value();
}

authority_files authority_files::read(const std::string& folder) {
    const std::string in = key_folder(folder) + "/";
    const std::string path = in + "certificate.pem";
    authority_files all;
    all.certificate =
        std::move(certificates_in(read_pem_file(path).value(), in_quotes(path)).value().front());
    check_authority(*all.certificate, in_quotes(path));
    const auto valid = check_time(*all.certificate, std::chrono::system_clock::now());
    if (!valid)
        throw error(errc::invalid,
                    fmt::format("the authority {} {}", in_quotes(path), valid.sentence()));
    const secret_text secret = read_secret_file(in + "key.pem").value();
    all.key = private_key_in(secret.text(), in_quotes(in + "key.pem")).value();
    if (X509_check_private_key(all.certificate.get(), all.key.get()) != 1) {
        clear_openssl_errors();
        throw error(errc::invalid,
                    fmt::format("\"{}key.pem\" is not the private key of the certificate {}", in,
                                in_quotes(path)));
    }
    all.list = own_list(in, *all.certificate);
    return all;
}

void write_list(file_changes& to, const std::string& in, X509_CRL& list) {
    // The list first: its number alone would mean that the newest list is lost.
    to.write(in + "revoked.pem", to_pem(list), 0644, true);
    to.write(in + list_number_file, fmt::format("{}\n", number_of(list)), 0644, true);
}

std::vector<x509_crl_ptr> revocation_lists_beside(const std::string& path, X509& authority) {
    const std::string beside = folder_of_file(path) + "/revoked.pem";
    if (!is_there(beside)) return {};
    auto all = revocation_lists_of(read_pem_file(beside).value(), in_quotes(beside));
    // It may be the copy of an endpoint that trusts others, too.
    std::erase_if(all, [&](const x509_crl_ptr& each) { return !is_list_of(*each, authority); });
    if (!all.empty()) return all;
    throw error(errc::invalid, fmt::format("{} is not the revocation list of {}", in_quotes(beside),
                                           in_quotes(path)));
}

trusted_files::trusted_files(const std::string& folder)
    : authorities_{folder + "/authority.pem", text_if_there(folder + "/authority.pem")},
      lists_{folder + "/revoked.pem", text_if_there(folder + "/revoked.pem")} {}

void trusted_files::add(X509& authority) {
    auto& [path, text, has_changed] = authorities_;
    if (!text.empty()) {
        const auto certificates = certificates_in(text, in_quotes(path)).value();
        for (const x509_ptr& each : certificates)
            if (X509_cmp(each.get(), &authority) == 0) return;
        if (!text.ends_with('\n')) text += '\n';
    }
    text += to_pem(authority);
    has_changed = true;
}

void trusted_files::take_over(X509_CRL& list) {
    if (authorities_.text.empty()) authorities_.text = read_pem_file(authorities_.path).value();
    const auto trusted = certificates_in(authorities_.text, in_quotes(authorities_.path)).value();
    const auto by = std::find_if(trusted.begin(), trusted.end(),
                                 [&](const x509_ptr& each) { return is_list_of(list, *each); });
    if (by == trusted.end())
        throw error(errc::invalid,
                    fmt::format("the revocation list of {} is not signed by an authority in {}",
                                to_line(X509_CRL_get_issuer(&list)), in_quotes(authorities_.path)));
    std::string text;
    for (const x509_crl_ptr& each : revocation_lists_of(lists_.text, in_quotes(lists_.path))) {
        if (!is_list_of(*each, **by)) {
            text += to_pem(*each);
        } else if (is_older(list, *each)) {
            throw error(
                errc::invalid,
                fmt::format("the revocation list of {} is older ({}) than the one in {} ({}), "
                            "expected the newest",
                            to_line(X509_CRL_get_issuer(&list)), number_in_words(list),
                            in_quotes(lists_.path), number_in_words(*each)));
        } else if (const std::string lacking = taken_back_by(list, *each); !lacking.empty()) {
            throw error(errc::invalid,
                        fmt::format("the revocation list of {} lacks {}, which one of the same "
                                    "number in {} revokes, as copies of an authority make them, "
                                    "expected one list; example: amalgam key revoke {} --with lab",
                                    to_line(X509_CRL_get_issuer(&list)), lacking,
                                    in_quotes(lists_.path), lacking));
        }
    }
    lists_.text = text + to_pem(list);
    lists_.has_changed = true;
}

void trusted_files::write_changes(file_changes& to) const {
    // In this order: who is interrupted between the two has not let in whom an authority revoked.
    for (const file* each : {&lists_, &authorities_})
        if (each->has_changed) to.write(each->path, each->text, 0644, true);
}

openssl_ptr<ASN1_STRING> serial_to_revoke(const std::string& certificate_or_serial,
                                          X509& authority) {
    openssl_ptr<ASN1_STRING> serial;
    const bool is_path = names_a_file(certificate_or_serial) ||
                         certificate_or_serial.find('/') != certificate_or_serial.npos ||
                         is_existing_key(certificate_or_serial);
    if (is_path) {
        const std::string path = key_file(certificate_or_serial, "certificate.pem");
        const auto shown = certificates_in(read_pem_file(path).value(), in_quotes(path)).value();
        if (!is_by(*shown.front(), authority))
            throw error(errc::invalid,
                        fmt::format("{} was not certified by {}, which therefore cannot revoke it",
                                    in_quotes(path), to_line(X509_get_subject_name(&authority))));
        serial.reset(ASN1_INTEGER_dup(X509_get0_serialNumber(shown.front().get())));
    } else if (is_hexadecimal(certificate_or_serial)) {
        refuse_what_may_be_a_name(certificate_or_serial);
        BIGNUM* number = nullptr;
        BN_hex2bn(&number, certificate_or_serial.c_str());
        const openssl_ptr<BIGNUM> kept(number);
        serial.reset(number == nullptr ? nullptr : BN_to_ASN1_INTEGER(number, nullptr));
    } else {
        throw error(
            errc::invalid,
            fmt::format("\"{}\" is neither a certificate nor a serial number, expected a "
                        "file, the name of a key, or up to {} hexadecimal digits",
                        printable_name(certificate_or_serial.substr(0, 80)), most_serial_digits));
    }
    if (serial == nullptr) throw std::bad_alloc();
    if (ASN1_INTEGER_cmp(serial.get(), X509_get0_serialNumber(&authority)) == 0)
        throw error(errc::invalid,
                    "an authority cannot revoke itself; take it out of the authority.pem of every "
                    "endpoint");
    return serial;
}

}  // namespace amalgam::detail
