#include "fabric/trust/keys/certificate.hpp"

#include <algorithm>
#include <array>
#include <ctime>
#include <string_view>

#include <arpa/inet.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <openssl/err.h>

#include <amalgam/core/detail/printable.hpp>

#include "fabric/trust/keys/trusted_keys.hpp"

namespace amalgam::detail {
namespace {

constexpr std::size_t most_name_bytes = 255;
constexpr std::size_t most_groups = 64;

/// Empty if it is not text, or has control characters, which no name needs, or characters that turn
/// the direction of text, by which one name can look like another.
std::string text_of(const ASN1_STRING* value) {
    unsigned char* utf8 = nullptr;
    const int size = ASN1_STRING_to_UTF8(&utf8, value);
    if (size < 0) {
        clear_openssl_errors();
        return {};
    }
    std::string text(reinterpret_cast<char*>(utf8), static_cast<std::size_t>(size));
    OPENSSL_free(utf8);
    if (text.size() > most_name_bytes || has_controls(text)) return {};
    return text;
}

/// The attributes of that kind, in the order of the name.
std::vector<std::string> entries(const X509_NAME* name, int kind) {
    std::vector<std::string> all;
    for (int at = -1; (at = X509_NAME_get_index_by_NID(name, kind, at)) >= 0;)
        all.push_back(text_of(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, at))));
    return all;
}

std::string address_text(const ASN1_OCTET_STRING* address) {
    char text[INET6_ADDRSTRLEN] = {};
    const int size = ASN1_STRING_length(address);
    const int family = size == 4 ? AF_INET : size == 16 ? AF_INET6 : AF_UNSPEC;
    if (family == AF_UNSPEC ||
        ::inet_ntop(family, ASN1_STRING_get0_data(address), text, sizeof text) == nullptr)
        return {};
    return text;
}

/// Empty for kinds of names that are no hosts.
std::string host_of(const GENERAL_NAME* name) {
    int kind = 0;
    const void* value = GENERAL_NAME_get0_value(name, &kind);
    if (kind == GEN_DNS) return text_of(static_cast<const ASN1_STRING*>(value));
    if (kind == GEN_IPADD) return address_text(static_cast<const ASN1_OCTET_STRING*>(value));
    return {};
}

/// The common name, else the first DNS name.
std::string name_of(X509& certificate) {
    const auto common = entries(X509_get_subject_name(&certificate), NID_commonName);
    if (!common.empty()) return common.size() == 1 ? common.front() : std::string();
    for (const std::string& host : hosts_of(certificate))
        if (host.find_first_not_of("0123456789.:") != host.npos && host.find(':') == host.npos)
            return host;
    return {};
}

/// Of a SubjectPublicKeyInfo, which it frees.
key_fingerprint fingerprint_of_der(unsigned char* der, int size) {
    key_fingerprint print;
    if (size <= 0 || EVP_Digest(der, static_cast<std::size_t>(size), print.bytes.data(), nullptr,
                                EVP_sha256(), nullptr) != 1)
        print = {};
    OPENSSL_free(der);
    return print;
}

}  // namespace

result<identity> identity_of(X509& certificate) {
    identity who{.kind = identity_kind::certificate, .name = name_of(certificate)};
    if (who.name.empty())
        return {errc::denied,
                fmt::format("the certificate of \"{}\" has no usable name, expected one common "
                            "name of at most {} bytes without control characters",
                            to_line(X509_get_subject_name(&certificate)), most_name_bytes)};
    if (is_fingerprint(who.name))
        return {errc::denied,
                fmt::format("the certificate of {} has the fingerprint of a key for its name, as "
                            "who is trusted by that key alone would be called, expected a name of "
                            "its own",
                            who.name)};
    who.groups = entries(X509_get_subject_name(&certificate), NID_organizationalUnitName);
    const bool empty = std::any_of(who.groups.begin(), who.groups.end(),
                                   [](const std::string& each) { return each.empty(); });
    if (empty || who.groups.size() > most_groups)
        return {errc::denied,
                fmt::format("the certificate of {} has groups (OU) that cannot be used, expected "
                            "at most {}, each of at most {} bytes without control characters",
                            who.name, most_groups, most_name_bytes)};
    who.key = fingerprint_of(certificate);
    return who;
}

identity identity_of_key(X509& certificate) {
    identity who{.kind = identity_kind::certificate};
    who.key = fingerprint_of(certificate);
    who.name = amalgam::to_text(who.key);
    return who;
}

key_fingerprint fingerprint_of(EVP_PKEY& key) {
    unsigned char* der = nullptr;
    const int size = i2d_PUBKEY(&key, &der);
    return fingerprint_of_der(der, size);
}

key_fingerprint fingerprint_of(X509& certificate) {
    if (X509_get0_pubkey(&certificate) == nullptr) return {};
    unsigned char* der = nullptr;
    const int size = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(&certificate), &der);
    return fingerprint_of_der(der, size);
}

bool is_self_signed(X509& certificate) noexcept {
    return (X509_get_extension_flags(&certificate) & EXFLAG_SS) != 0;
}

std::vector<std::string> hosts_of(const GENERAL_NAMES* names) {
    std::vector<std::string> all;
    for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names); ++i)
        if (std::string host = host_of(sk_GENERAL_NAME_value(names, i)); !host.empty())
            all.push_back(std::move(host));
    return all;
}

std::vector<std::string> hosts_of(X509& certificate) {
    const openssl_ptr<GENERAL_NAMES> names(static_cast<GENERAL_NAMES*>(
        X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr)));
    return hosts_of(names.get());
}

std::string to_line(const X509_NAME* name) {
    const openssl_ptr<BIO> to(BIO_new(BIO_s_mem()));
    constexpr unsigned long how = ASN1_STRFLGS_ESC_2253 | ASN1_STRFLGS_ESC_CTRL |
                                  ASN1_STRFLGS_UTF8_CONVERT | ASN1_STRFLGS_DUMP_UNKNOWN |
                                  ASN1_STRFLGS_DUMP_DER | XN_FLAG_SEP_CPLUS_SPC | XN_FLAG_FN_SN;
    if (to == nullptr || X509_NAME_print_ex(to.get(), name, 0, how) < 0) return {};
    char* text = nullptr;
    const long size = BIO_get_mem_data(to.get(), &text);
    return printable_name({text, static_cast<std::size_t>(size)});
}

std::string serial_of(const ASN1_INTEGER* number) {
    const openssl_ptr<BIGNUM> value(ASN1_INTEGER_to_BN(number, nullptr));
    char* text = value == nullptr ? nullptr : BN_bn2hex(value.get());
    std::string serial = text == nullptr ? "" : text;
    OPENSSL_free(text);
    return serial;
}

wall_time time_of(const ASN1_TIME* time) {
    std::tm parts{};
    if (ASN1_TIME_to_tm(time, &parts) != 1) return {};
    // What "no end" is written as, the year 9999, is beyond the nanoseconds of 64 bits.
    const std::chrono::seconds since(::timegm(&parts));
    const auto last = std::chrono::floor<std::chrono::seconds>(wall_time::max());
    return wall_time(std::min(since, last.time_since_epoch()));
}

wall_time first_end_of(const STACK_OF(X509) * certificates) {
    wall_time first = wall_time::max();
    for (int i = 0; i < sk_X509_num(certificates); ++i)
        first = std::min(first, time_of(X509_get0_notAfter(sk_X509_value(certificates, i))));
    return first;
}

std::string to_text(wall_time time) {
    const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
    std::tm parts{};
    ::gmtime_r(&seconds, &parts);
    return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", parts);
}

result<void> check_time(X509& certificate, wall_time now) {
    const wall_time first = time_of(X509_get0_notBefore(&certificate));
    const wall_time last = time_of(X509_get0_notAfter(&certificate));
    if (now < first)
        return {errc::denied, fmt::format("is not valid before {}, but it is {} here",
                                          to_text(first), to_text(now))};
    if (now > last) return {errc::denied, fmt::format("has expired on {}", to_text(last))};
    return {};
}

}  // namespace amalgam::detail
