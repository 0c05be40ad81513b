#pragma once

// clang-format off: before OpenSSL's own.
#include "fabric/trust/openssl/openssl_functions.hpp"
// clang-format on

#include <mutex>
#include <string>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <amalgam/core/detail/memory.hpp>

namespace amalgam::detail {

/// Frees what OpenSSL allocated.
struct openssl_free {
    void operator()(SSL_CTX* p) const noexcept { SSL_CTX_free(p); }
    void operator()(SSL* p) const noexcept { SSL_free(p); }
    void operator()(SSL_SESSION* p) const noexcept { SSL_SESSION_free(p); }
    void operator()(BIO* p) const noexcept { BIO_free_all(p); }
    void operator()(EVP_PKEY* p) const noexcept { EVP_PKEY_free(p); }
    void operator()(EVP_PKEY_CTX* p) const noexcept { EVP_PKEY_CTX_free(p); }
    void operator()(X509* p) const noexcept { X509_free(p); }
    void operator()(X509_CRL* p) const noexcept { X509_CRL_free(p); }
    void operator()(X509_REQ* p) const noexcept { X509_REQ_free(p); }
    void operator()(X509_REVOKED* p) const noexcept { X509_REVOKED_free(p); }
    void operator()(X509_STORE* p) const noexcept { X509_STORE_free(p); }
    void operator()(X509_STORE_CTX* p) const noexcept { X509_STORE_CTX_free(p); }
    void operator()(X509_EXTENSION* p) const noexcept { X509_EXTENSION_free(p); }
    void operator()(AUTHORITY_KEYID* p) const noexcept { AUTHORITY_KEYID_free(p); }
    void operator()(GENERAL_NAMES* p) const noexcept { GENERAL_NAMES_free(p); }
    void operator()(ASN1_STRING* p) const noexcept { ASN1_STRING_free(p); }  // Times, integers.
    void operator()(BIGNUM* p) const noexcept { BN_free(p); }
    void operator()(STACK_OF(X509_EXTENSION) * p) const noexcept {
        sk_X509_EXTENSION_pop_free(p, &X509_EXTENSION_free);
    }
};

template <typename T>
using openssl_ptr = std::unique_ptr<T, openssl_free>;

using ssl_context_ptr = openssl_ptr<SSL_CTX>;
using pkey_ptr = openssl_ptr<EVP_PKEY>;
using x509_ptr = openssl_ptr<X509>;
using x509_crl_ptr = openssl_ptr<X509_CRL>;
using x509_request_ptr = openssl_ptr<X509_REQ>;

/// Empties this thread's queue of errors. That one of them was a lack of memory is remembered.
void clear_openssl_errors() noexcept;

/// Whether OpenSSL lacked memory since this was asked last, by its errors that were cleared in this
/// thread. What has failed then says nothing about the file or key that it was about. And what has
/// not may be half of what it should be.
bool openssl_lacked_memory() noexcept;

/// The reason of the newest error in this thread's queue, which is emptied: "bad decrypt". "unknown
/// reason" without any.
std::string take_openssl_error();

/// At the end of its scope the thread's queue of errors is empty. It is the user's too, who would
/// take what is left there for the reason of a failure of his own.
struct no_errors_left {
    no_errors_left() noexcept = default;
    no_errors_left(const no_errors_left&) = delete;
    ~no_errors_left();
};

/// Whether what OpenSSL allocates comes from malloc(), as it does unless the program has said
/// otherwise.
bool openssl_allocates_by_malloc() noexcept;

/// Makes OpenSSL keep private keys in memory that is locked, as far as the limit allows, and left
/// out of core dumps. Once per process; does nothing if the program has done it itself.
void use_secure_heap() noexcept;

/// Held by whoever uses that heap while fork() may be called, which waits for it by parsing_turn:
/// a child would find OpenSSL's own lock of it taken. No other lock is taken under it.
std::mutex& secure_heap_lock() noexcept;

}  // namespace amalgam::detail
