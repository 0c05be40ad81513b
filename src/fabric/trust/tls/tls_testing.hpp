#pragma once

#include <ctime>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "fabric/trust/openssl/openssl.hpp"
#include "fabric/trust/tls/tls_contexts.hpp"

namespace amalgam::detail {

/// For tests: whom a certificate is for. Times are seconds from now.
struct test_subject {
    std::string name = "node";
    std::string hosts = "IP:127.0.0.1,IP:::1,DNS:localhost";
    long starts = -3600;
    long ends = 3600;
    std::string uses = "serverAuth,clientAuth";
};

/// For tests: a certificate and its key.
struct test_certificate {
    pkey_ptr key{EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519")};
    x509_ptr made{X509_new()};
};

inline std::string pem_of(X509* certificate) {
    openssl_ptr<BIO> out(BIO_new(BIO_s_mem()));
    PEM_write_bio_X509(out.get(), certificate);
    char* text = nullptr;
    const long bytes = BIO_get_mem_data(out.get(), &text);
    return {text, static_cast<std::size_t>(bytes)};
}

inline std::string pem_of(EVP_PKEY* key) {
    openssl_ptr<BIO> out(BIO_new(BIO_s_mem()));
    PEM_write_bio_PrivateKey(out.get(), key, nullptr, nullptr, 0, nullptr, nullptr);
    char* text = nullptr;
    const long bytes = BIO_get_mem_data(out.get(), &text);
    return {text, static_cast<std::size_t>(bytes)};
}

/// For tests: an authority that signs whatever it is asked to.
class test_authority {
public:
    test_authority() {
        static int number = 0;
        fill(self_, {"authority " + std::to_string(++number), "", -7200, 7200}, "critical,CA:TRUE");
        sign(self_);
    }

    test_certificate issue(const test_subject& whom = {}) const {
        test_certificate one;
        fill(one, whom, "CA:FALSE");
        if (!whom.hosts.empty()) add(one, NID_subject_alt_name, whom.hosts);
        add(one, NID_ext_key_usage, whom.uses);
        sign(one);
        return one;
    }

    /// Another one, which this one signed.
    test_authority below(long ends) const { return {*this, ends}; }

    X509* certificate() const noexcept { return self_.made.get(); }
    EVP_PKEY* key() const noexcept { return self_.key.get(); }

    /// Writes what `?credentials=FOLDER` reads.
    void write_folder(const std::string& folder, const test_certificate& whose) const {
        std::filesystem::create_directories(folder);
        std::ofstream(folder + "/authority.pem") << pem_of(certificate());
        std::ofstream(folder + "/certificate.pem") << pem_of(whose.made.get());
        std::ofstream(folder + "/key.pem").close();
        std::filesystem::permissions(folder + "/key.pem", std::filesystem::perms::owner_read |
                                                              std::filesystem::perms::owner_write);
        std::ofstream(folder + "/key.pem") << pem_of(whose.key.get());
    }

private:
    test_authority(const test_authority& above, long ends) {
        above.fill(self_, {"authority below", "", -7200, ends}, "critical,CA:TRUE");
        above.sign(self_);
    }
    void fill(test_certificate& one, const test_subject& whom, const char* constraints) const {
        static long serial = 0;
        X509* const made = one.made.get();
        X509_set_version(made, X509_VERSION_3);
        ASN1_INTEGER_set(X509_get_serialNumber(made), ++serial);
        std::time_t now = std::time(nullptr);
        X509_time_adj_ex(X509_getm_notBefore(made), 0, whom.starts, &now);
        X509_time_adj_ex(X509_getm_notAfter(made), 0, whom.ends, &now);
        X509_set_pubkey(made, one.key.get());
        X509_NAME_add_entry_by_txt(X509_get_subject_name(made), "CN", MBSTRING_UTF8,
                                   reinterpret_cast<const unsigned char*>(whom.name.c_str()), -1,
                                   -1, 0);
        X509_set_issuer_name(made, X509_get_subject_name(self_.made.get()));
        add(one, NID_basic_constraints, constraints);
        add(one, NID_subject_key_identifier, "hash");
    }
    void add(test_certificate& one, int kind, const std::string& value) const {
        X509V3_CTX about;
        X509V3_set_ctx(&about, self_.made.get(), one.made.get(), nullptr, nullptr, 0);
        openssl_ptr<X509_EXTENSION> made(X509V3_EXT_conf_nid(nullptr, &about, kind, value.c_str()));
        if (!made || X509_add_ext(one.made.get(), made.get(), -1) != 1)
            throw std::runtime_error("cannot add an extension: " + value);
    }
    void sign(test_certificate& one) const {
        if (X509_sign(one.made.get(), self_.key.get(), nullptr) == 0)
            throw std::runtime_error("cannot sign");
    }

    test_certificate self_;
};

/// For tests: an authority and one node, as a port takes them.
struct test_lab {
    test_authority authority;
    test_certificate node = authority.issue();
    std::shared_ptr<const credentials> trust = trust_of(node);

    std::shared_ptr<const credentials> trust_of(const test_certificate& one) const {
        return credentials::from_text({.certificate = pem_of(one.made.get()),
                                       .key = pem_of(one.key.get()),
                                       .authority = pem_of(authority.certificate())});
    }
};

/// For tests: a context for both sides, without our own rules on top of OpenSSL's.
inline ssl_context_ptr bare_context(const test_authority& trusted, const test_certificate* own) {
    ssl_context_ptr made(SSL_CTX_new(TLS_method()));
    SSL_CTX_set_min_proto_version(made.get(), TLS1_3_VERSION);
    X509_STORE_add_cert(SSL_CTX_get_cert_store(made.get()), trusted.certificate());
    SSL_CTX_set_verify(made.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    if (own != nullptr) {
        SSL_CTX_use_certificate(made.get(), own->made.get());
        SSL_CTX_use_PrivateKey(made.get(), own->key.get());
    }
    static const unsigned char protocols[] =
        "\x09"
        "amalgam/1";
    SSL_CTX_set_alpn_protos(made.get(), protocols, sizeof protocols - 1);
    SSL_CTX_set_alpn_select_cb(
        made.get(),
        [](SSL*, const unsigned char** out, unsigned char* bytes, const unsigned char* in,
           unsigned int in_bytes, void*) {
            return SSL_select_next_proto(const_cast<unsigned char**>(out), bytes, protocols,
                                         sizeof protocols - 1, in,
                                         in_bytes) == OPENSSL_NPN_NEGOTIATED
                       ? SSL_TLSEXT_ERR_OK
                       : SSL_TLSEXT_ERR_ALERT_FATAL;
        },
        nullptr);
    const unsigned char about[] = "test";
    SSL_CTX_set_session_id_context(made.get(), about, sizeof about);
    return made;
}

}  // namespace amalgam::detail
