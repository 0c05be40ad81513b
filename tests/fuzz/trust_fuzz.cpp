#include <array>
#include <chrono>
#include <string>

#include <openssl/err.h>

#include <amalgam/fabric/identity.hpp>

#include "fabric/trust/keys/certificate_builder.hpp"
#include "fabric/trust/keys/pem.hpp"
#include "fuzz/fuzz.hpp"

// What names somebody: certificates that a peer shows (in DER, as they travel), requests that an
// authority is asked to sign, files in PEM, and fingerprints.
namespace amalgam::fuzz {

namespace {

using namespace detail;

/// By the code points, not as the code under test looks for them.
bool is_printable(std::string_view text) {
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto byte = [&](std::size_t more) -> std::uint32_t {
            return i + more < text.size() ? static_cast<unsigned char>(text[i + more]) : 0u;
        };
        std::uint32_t point = byte(0);
        if (byte(0) >> 5 == 6 && byte(0) >= 0xc2 && byte(1) >> 6 == 2)
            point = (byte(0) & 0x1f) << 6 | (byte(1) & 0x3f);
        if (byte(0) >> 4 == 14 && (byte(0) > 0xe0 || byte(1) >= 0xa0) && byte(1) >> 6 == 2 &&
            byte(2) >> 6 == 2)
            point = (byte(0) & 0xf) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
        if (point < 0x20 || point == 0x7f) return false;
        if (point == byte(0)) continue;  // A stray byte is no character.
        const bool turns = point == 0x61c || point == 0x200e || point == 0x200f ||
                           (point >= 0x202a && point <= 0x202e) ||
                           (point >= 0x2066 && point <= 0x2069);
        if ((point >= 0x80 && point <= 0x9f) || turns) return false;
    }
    return true;
}

void check(const result<identity>& who) {
    if (!who) {
        require(who.code() == errc::denied && is_printable(who.sentence()),
                "a certificate without a usable name is denied, in one line");
        return;
    }
    require(who->kind == identity_kind::certificate && !who->name.empty() &&
                who->name.size() < 256 && is_printable(to_text(*who)),
            "a name is one line");
    for (const std::string& each : who->groups)
        require(!each.empty() && is_printable(each), "a group is one line");
}

void check_certificate(X509& shown) {
    check(identity_of(shown));
    for (const std::string& each : hosts_of(shown))
        require(is_printable(each), "a host is one line");
    require(is_printable(to_line(X509_get_issuer_name(&shown))), "an issuer is one line");
    (void)check_time(shown, std::chrono::system_clock::now());
    require(is_printable(to_text(time_of(X509_get0_notAfter(&shown)))), "a time is one line");
}

void check_request(X509_REQ& request) {
    try {
        check_names(names_in(request, "the request"));
    } catch (const error& why) {
        require(why.code() == errc::invalid && is_printable(why.what()),
                "a request is refused in one line");
    }
}

void check_der(const_bytes input) {
    const auto* at = reinterpret_cast<const unsigned char*>(input.data());
    const auto size = static_cast<long>(input.size());
    if (const x509_ptr shown{d2i_X509(nullptr, &at, size)}) check_certificate(*shown);
    at = reinterpret_cast<const unsigned char*>(input.data());
    if (const x509_request_ptr request{d2i_X509_REQ(nullptr, &at, size)}) check_request(*request);
    ERR_clear_error();
}

void check_pem(const std::string& text) {
    const auto certificates = certificates_in(text, "it");
    require(
        certificates || (certificates.code() == errc::invalid && !certificates.sentence().empty()),
        "certificates are refused with a reason");
    if (certificates)
        for (const x509_ptr& each : *certificates)
            check_certificate(*each);
    const auto lists = revocation_lists_in(text, "it");
    if (lists)
        for (const x509_crl_ptr& each : *lists) {
            require(!is_older(*each, *each) && is_printable(number_in_words(*each)),
                    "a list is as old as itself");
            if (certificates) (void)says_it_is_of(*each, *certificates->front());
        }
    if (const auto request = request_in(text, "it")) check_request(**request);
    (void)private_key_in(text, "it");
    require(ERR_peek_error() == 0, "no error of OpenSSL is left for others to find");
}

void check_texts(std::string_view text) {
    try {
        const key_fingerprint key = parse_key_fingerprint(text);
        require(parse_key_fingerprint(to_text(key)) == key, "a fingerprint is read as written");
    } catch (const error& why) {
        require(why.code() == errc::invalid && is_printable(why.what()),
                "a fingerprint is refused in one line");
    }
}

const certified_names seven{"node7", {"node7.lab", "10.0.0.7", "::7"}, {"compute", "admin"}};

std::string made_der(bool request) {
    static const pkey_ptr key = generate_key(key_algorithm::ed25519);
    unsigned char* der = nullptr;
    int size = 0;
    if (request) {
        size = i2d_X509_REQ(make_request(seven, *key).get(), &der);
    } else {
        const auto end = std::chrono::system_clock::now() + std::chrono::hours(24);
        const x509_ptr by = make_authority("lab", *key, end);
        size = i2d_X509(make_certificate(seven, *key, end, *by, *key).get(), &der);
    }
    std::string bytes(reinterpret_cast<char*>(der), static_cast<std::size_t>(size));
    OPENSSL_free(der);
    return bytes;
}

std::string made_pem() {
    const pkey_ptr key = generate_key(key_algorithm::ed25519);
    const auto end = std::chrono::system_clock::now() + std::chrono::hours(24);
    const x509_ptr by = make_authority("lab", *key, end);
    return to_pem(*by) + to_pem(*make_list(nullptr, X509_get0_serialNumber(by.get()), *by, *key)) +
           to_pem(*make_request(seven, *key)) + std::string(to_pem(*key).text());
}

}  // namespace

void run_one(const_bytes input) {
    const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
    check_der(input);
    check_pem(std::string(text));
    check_texts(text);
}

std::span<const std::string_view> seeds() {
    static const std::string certificate = made_der(false), request = made_der(true),
                             pem = made_pem();
    static const std::array<std::string_view, 4> all{
        certificate, request, pem,
        "030a11181f262d343b424950575e656c737a81888f969da4abb2b9c0c7ced5dc"};
    return all;
}

}  // namespace amalgam::fuzz
