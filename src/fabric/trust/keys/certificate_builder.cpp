#include "fabric/trust/keys/certificate_builder.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <string_view>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/rand.h>

#include <amalgam/core/detail/printable.hpp>

#include "fabric/trust/keys/pem.hpp"
#include "fabric/trust/keys/pre_shared_keys.hpp"

namespace amalgam::detail {
namespace {

constexpr std::size_t most_host_bytes = 253;
constexpr std::size_t most_certified = 64;  // Hosts, and groups.
constexpr std::chrono::hours clocks_differ{1};
constexpr int least_security_bits = 112;  // As TLS asks for, see loaded_credentials.

void expect(bool good) {
    if (good) return;
    throw error(errc::unsupported, fmt::format("OpenSSL cannot make this key or certificate ({})",
                                               take_openssl_error()));
}

bool is_ip_address(const std::string& host) noexcept {
    in6_addr bytes{};
    return ::inet_pton(AF_INET, host.c_str(), &bytes) == 1 ||
           ::inet_pton(AF_INET6, host.c_str(), &bytes) == 1;
}

/// Labels of letters, digits, hyphens and underscores; the first may be "*" where two others follow
/// that have no underscore: OpenSSL compares any other "*" as a letter, which no host has.
bool is_dns_name(std::string_view host) noexcept {
    if (host.starts_with("*.")) {
        host.remove_prefix(2);
        if (host.find('.') == host.npos || host.find('_') != host.npos) return false;
    }
    if (host.empty() || host.size() > most_host_bytes) return false;
    // Else a mistyped address would be certified as a name.
    if (host.find_first_not_of("0123456789.") == host.npos) return false;
    while (true) {
        const std::string_view label = host.substr(0, host.find('.'));
        const bool good =
            !label.empty() && label.size() <= 63 && label.front() != '-' && label.back() != '-' &&
            std::all_of(label.begin(), label.end(),
                        [](char c) { return is_letter_or_digit(c) || c == '-' || c == '_'; });
        if (!good) return false;
        if (label.size() == host.size()) return true;
        host.remove_prefix(label.size() + 1);
    }
}

void add_extension(X509V3_CTX& about, int kind, const std::string& value,
                   const auto& give_to_owner) {
    const openssl_ptr<X509_EXTENSION> made(
        X509V3_EXT_conf_nid(nullptr, &about, kind, value.c_str()));
    expect(made != nullptr && give_to_owner(made.get()));
}

/// "DNS:node7,IP:10.0.0.7". Hosts were checked, so they hold no comma.
std::string alternative_names(const std::vector<std::string>& hosts) {
    std::string all;
    for (const std::string& each : hosts)
        all += (all.empty() ? "" : ",") + std::string(is_ip_address(each) ? "IP:" : "DNS:") + each;
    return all;
}

void set_subject(X509_NAME* subject, const certified_names& names) {
    const auto add = [&](int kind, const std::string& value) {
        expect(X509_NAME_add_entry_by_NID(subject, kind, MBSTRING_UTF8,
                                          reinterpret_cast<const unsigned char*>(value.data()),
                                          static_cast<int>(value.size()), -1, 0) == 1);
    };
    add(NID_commonName, names.name);
    for (const std::string& group : names.groups)
        add(NID_organizationalUnitName, group);
}

const EVP_MD* digest_for(const EVP_PKEY& key) {
    const bool has_its_own =
        EVP_PKEY_is_a(&key, "ED25519") == 1 || EVP_PKEY_is_a(&key, "ED448") == 1;
    return has_its_own ? nullptr : EVP_sha256();
}

void set_random_serial(X509& certificate) {
    unsigned char bytes[16];
    expect(RAND_bytes(bytes, sizeof bytes) == 1);
    bytes[0] = static_cast<unsigned char>((bytes[0] & 0x7f) | 0x40);  // Positive, and never short.
    const openssl_ptr<BIGNUM> number(BN_bin2bn(bytes, sizeof bytes, nullptr));
    expect(number != nullptr &&
           BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(&certificate)) != nullptr);
}

void set_validity(X509& certificate, wall_time end) {
    using std::chrono::system_clock;
    const auto first = system_clock::to_time_t(system_clock::now() - clocks_differ);
    expect(ASN1_TIME_set(X509_getm_notBefore(&certificate), first) != nullptr &&
           ASN1_TIME_set(X509_getm_notAfter(&certificate), system_clock::to_time_t(end)) !=
               nullptr);
}

x509_ptr begin_certificate(const certified_names& names, EVP_PKEY& key, wall_time end) {
    x509_ptr made(X509_new());
    expect(made != nullptr && X509_set_version(made.get(), X509_VERSION_3) == 1 &&
           X509_set_pubkey(made.get(), &key) == 1);
    set_random_serial(*made);
    set_validity(*made, end);
    set_subject(X509_get_subject_name(made.get()), names);
    return made;
}

using named_extensions = std::vector<std::pair<int, std::string>>;

named_extensions extensions_of_endpoint(const certified_names& names) {
    named_extensions all{{NID_basic_constraints, "critical,CA:FALSE"},
                         {NID_key_usage, "critical,digitalSignature"},
                         {NID_ext_key_usage, "serverAuth,clientAuth"},
                         {NID_subject_key_identifier, "hash"}};
    if (!names.hosts.empty())
        all.emplace_back(NID_subject_alt_name, alternative_names(names.hosts));
    return all;
}

void finish_certificate(X509& made, X509& issuer, EVP_PKEY& issuer_key,
                        const named_extensions& extensions) {
    expect(X509_set_issuer_name(&made, X509_get_subject_name(&issuer)) == 1);
    X509V3_CTX about{};
    X509V3_set_ctx(&about, &issuer, &made, nullptr, nullptr, 0);
    for (const auto& [kind, value] : extensions)
        add_extension(about, kind, value,
                      [&](X509_EXTENSION* one) { return X509_add_ext(&made, one, -1) == 1; });
    expect(X509_sign(&made, &issuer_key, digest_for(issuer_key)) > 0);
}

void copy_revoked(X509_CRL* from, X509_CRL& to) {
    auto* const all = from == nullptr ? nullptr : X509_CRL_get_REVOKED(from);
    for (int i = 0; all != nullptr && i < sk_X509_REVOKED_num(all); ++i) {
        openssl_ptr<X509_REVOKED> one(X509_REVOKED_dup(sk_X509_REVOKED_value(all, i)));
        expect(one != nullptr && X509_CRL_add0_revoked(&to, one.get()) == 1);
        (void)one.release();
    }
}

/// Null without one.
openssl_ptr<ASN1_STRING> stored_number(const X509_CRL& list) {
    return openssl_ptr<ASN1_STRING>(
        static_cast<ASN1_INTEGER*>(X509_CRL_get_ext_d2i(&list, NID_crl_number, nullptr, nullptr)));
}

/// One more than that of the list before, which may have 20 bytes; else `first`.
void add_number(X509_CRL& list, const X509_CRL* before, std::uint64_t first) {
    openssl_ptr<ASN1_STRING> number(before == nullptr ? nullptr : stored_number(*before));
    if (number == nullptr) {
        number.reset(ASN1_INTEGER_new());
        expect(number != nullptr && ASN1_INTEGER_set_uint64(number.get(), first) == 1);
    } else {
        const openssl_ptr<BIGNUM> next(ASN1_INTEGER_to_BN(number.get(), nullptr));
        expect(next != nullptr && BN_add_word(next.get(), 1) == 1 &&
               BN_to_ASN1_INTEGER(next.get(), number.get()) != nullptr);
    }
    expect(X509_CRL_add1_ext_i2d(&list, NID_crl_number, number.get(), 0, X509V3_ADD_DEFAULT) == 1);
}

}  // namespace

void check_names(const certified_names& names) {
    const auto refuse = [](const char* what, const std::string& value, const char* expected) {
        throw error(errc::invalid,
                    fmt::format("the {} \"{}\" cannot be certified, expected {}", what,
                                printable_name(value.substr(0, 80)), expected));
    };
    if (!is_key_name(names.name))
        refuse("name", names.name,
               "letters, digits and ._@- up to 64, and no fingerprint; example: node7");
    for (const std::string& each : names.groups)
        if (!is_key_name(each))
            refuse("group", each,
                   "letters, digits and ._@- up to 64, and no fingerprint; example: compute");
    for (const std::string& each : names.hosts)
        if (!is_ip_address(each) && !is_dns_name(each))
            refuse("host", each,
                   each.find('*') == each.npos
                       ? "a DNS name or an IP address; example: node7.lab or 10.0.0.7"
                       : "a * only as the whole first label, and behind it two labels or more of "
                         "letters, digits and hyphens, as it matches nothing else; example: "
                         "*.rack.lab");
    if (names.hosts.size() > most_certified || names.groups.size() > most_certified)
        throw error(errc::invalid,
                    fmt::format("there are {} hosts and {} groups, expected at most {} of each",
                                names.hosts.size(), names.groups.size(), most_certified));
}

pkey_ptr generate_key(key_algorithm algorithm) {
    use_secure_heap();
    pkey_ptr made(algorithm == key_algorithm::p256
                      ? EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256")
                      : EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
    expect(made != nullptr);
    return made;
}

x509_request_ptr make_request(const certified_names& names, EVP_PKEY& key) {
    x509_request_ptr made(X509_REQ_new());
    expect(made != nullptr && X509_REQ_set_version(made.get(), X509_REQ_VERSION_1) == 1 &&
           X509_REQ_set_pubkey(made.get(), &key) == 1);
    set_subject(X509_REQ_get_subject_name(made.get()), names);
    if (!names.hosts.empty()) {
        X509V3_CTX about{};
        X509V3_set_ctx(&about, nullptr, nullptr, made.get(), nullptr, 0);
        openssl_ptr<STACK_OF(X509_EXTENSION)> all(sk_X509_EXTENSION_new_null());
        expect(all != nullptr);
        add_extension(about, NID_subject_alt_name, alternative_names(names.hosts),
                      [&](X509_EXTENSION* one) {
                          X509_EXTENSION* const copy = X509_EXTENSION_dup(one);
                          if (copy != nullptr && sk_X509_EXTENSION_push(all.get(), copy) > 0)
                              return true;
                          X509_EXTENSION_free(copy);
                          return false;
                      });
        expect(X509_REQ_add_extensions(made.get(), all.get()) == 1);
    }
    expect(X509_REQ_sign(made.get(), &key, digest_for(key)) > 0);
    return made;
}

certified_names names_in(X509_REQ& request, const std::string& called) {
    EVP_PKEY* const key = X509_REQ_get0_pubkey(&request);
    const bool good = key != nullptr && X509_REQ_verify(&request, key) == 1;
    clear_openssl_errors();
    if (!good)
        throw error(errc::invalid, fmt::format("{} is not signed by the key that it is for, "
                                               "expected what `amalgam key new` wrote",
                                               called));
    if (EVP_PKEY_get_security_bits(key) < least_security_bits)
        throw error(errc::invalid,
                    fmt::format("{} is for a key of {} bits, expected Ed25519, EC P-256 or larger, "
                                "or RSA of 2048 bits or more",
                                called, EVP_PKEY_get_bits(key)));
    // A certificate of that subject, to read it the same way.
    const x509_ptr as_certificate(X509_new());
    expect(as_certificate != nullptr &&
           X509_set_subject_name(as_certificate.get(), X509_REQ_get_subject_name(&request)) == 1);
    const result<identity> who = identity_of(*as_certificate);
    if (!who) throw error(errc::invalid, fmt::format("{}: {}", called, who.sentence()));
    certified_names names{who->name, {}, who->groups};
    const openssl_ptr<STACK_OF(X509_EXTENSION)> asked(X509_REQ_get_extensions(&request));
    const openssl_ptr<GENERAL_NAMES> hosts(static_cast<GENERAL_NAMES*>(
        X509V3_get_d2i(asked.get(), NID_subject_alt_name, nullptr, nullptr)));
    names.hosts = hosts_of(hosts.get());
    return names;
}

x509_ptr make_authority(const std::string& name, EVP_PKEY& key, wall_time end) {
    x509_ptr made = begin_certificate({name, {}, {}}, key, end);
    finish_certificate(*made, *made, key,
                       {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
                        {NID_key_usage, "critical,keyCertSign,cRLSign"},
                        {NID_subject_key_identifier, "hash"}});
    return made;
}

x509_ptr make_certificate(const certified_names& names, EVP_PKEY& key_of_owner, wall_time end,
                          X509& authority, EVP_PKEY& authority_key) {
    x509_ptr made = begin_certificate(names, key_of_owner, end);
    auto extensions = extensions_of_endpoint(names);
    extensions.emplace_back(NID_authority_key_identifier, "keyid:always");
    finish_certificate(*made, authority, authority_key, extensions);
    return made;
}

x509_ptr make_self_signed(const certified_names& names, EVP_PKEY& key, wall_time end) {
    x509_ptr made = begin_certificate(names, key, end);
    finish_certificate(*made, *made, key, extensions_of_endpoint(names));
    return made;
}

bool is_list_of(X509_CRL& list, X509& authority) {
    const bool is =
        X509_NAME_cmp(X509_CRL_get_issuer(&list), X509_get_subject_name(&authority)) == 0 &&
        X509_CRL_verify(&list, X509_get0_pubkey(&authority)) == 1;
    clear_openssl_errors();
    return is;
}

bool says_it_is_of(const X509_CRL& list, const X509& authority) {
    if (X509_NAME_cmp(X509_CRL_get_issuer(&list), X509_get_subject_name(&authority)) != 0)
        return false;
    const openssl_ptr<AUTHORITY_KEYID> key(static_cast<AUTHORITY_KEYID*>(
        X509_CRL_get_ext_d2i(&list, NID_authority_key_identifier, nullptr, nullptr)));
    return X509_check_akid(&authority, key.get()) == X509_V_OK;
}

std::uint64_t number_of(const X509_CRL& list) {
    const openssl_ptr<ASN1_STRING> number = stored_number(list);
    std::uint64_t value = 0;
    if (number == nullptr || ASN1_INTEGER_get_uint64(&value, number.get()) == 1) return value;
    clear_openssl_errors();
    return std::numeric_limits<std::uint64_t>::max();  // It may have 20 bytes.
}

bool is_older(const X509_CRL& list, const X509_CRL& than) {
    const std::uint64_t one = number_of(list), other = number_of(than);
    if (one != other) return one < other;
    return time_of(X509_CRL_get0_lastUpdate(&list)) < time_of(X509_CRL_get0_lastUpdate(&than));
}

std::string taken_back_by(X509_CRL& list, X509_CRL& before) {
    const std::uint64_t number = number_of(list);
    if (number == 0 || number == std::numeric_limits<std::uint64_t>::max() ||
        number != number_of(before))
        return {};
    auto* const all = X509_CRL_get_REVOKED(&before);
    for (int i = 0; i < sk_X509_REVOKED_num(all); ++i) {
        const ASN1_INTEGER* const serial =
            X509_REVOKED_get0_serialNumber(sk_X509_REVOKED_value(all, i));
        X509_REVOKED* found = nullptr;
        if (X509_CRL_get0_by_serial(&list, &found, serial) == 0) return serial_of(serial);
    }
    return {};
}

std::string number_in_words(const X509_CRL& list) {
    return fmt::format("number {} of {}", number_of(list),
                       to_text(time_of(X509_CRL_get0_lastUpdate(&list))));
}

x509_crl_ptr make_list(X509_CRL* before, const ASN1_INTEGER* add, X509& authority,
                       EVP_PKEY& authority_key, std::uint64_t first) {
    x509_crl_ptr made(X509_CRL_new());
    const openssl_ptr<ASN1_TIME> now(X509_gmtime_adj(nullptr, 0));
    const openssl_ptr<ASN1_TIME> begin(
        X509_gmtime_adj(nullptr, -std::chrono::seconds(clocks_differ).count()));
    expect(made != nullptr && now != nullptr && begin != nullptr &&
           X509_CRL_set_version(made.get(), X509_CRL_VERSION_2) == 1 &&
           X509_CRL_set_issuer_name(made.get(), X509_get_subject_name(&authority)) == 1 &&
           X509_CRL_set1_lastUpdate(made.get(), begin.get()) == 1 &&
           X509_CRL_set1_nextUpdate(made.get(), X509_get0_notAfter(&authority)) == 1);
    copy_revoked(before, *made);
    if (add != nullptr) {
        openssl_ptr<X509_REVOKED> one(X509_REVOKED_new());
        expect(one != nullptr &&
               X509_REVOKED_set_serialNumber(one.get(), const_cast<ASN1_INTEGER*>(add)) == 1 &&
               X509_REVOKED_set_revocationDate(one.get(), now.get()) == 1 &&
               X509_CRL_add0_revoked(made.get(), one.get()) == 1);
        (void)one.release();
    }
    X509V3_CTX about{};
    X509V3_set_ctx(&about, &authority, nullptr, nullptr, made.get(), 0);
    const auto give = [&](X509_EXTENSION* one) {
        return X509_CRL_add_ext(made.get(), one, -1) == 1;
    };
    add_extension(about, NID_authority_key_identifier, "keyid:always", give);
    add_number(*made, before, first);
    X509_CRL_sort(made.get());
    expect(X509_CRL_sign(made.get(), &authority_key, digest_for(authority_key)) > 0);
    return made;
}

}  // namespace amalgam::detail
