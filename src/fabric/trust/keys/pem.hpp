#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/result.hpp>

#include "fabric/limits.hpp"
#include "fabric/trust/openssl/openssl.hpp"

namespace amalgam::detail {

/// Bytes in OpenSSL's secure heap, wiped in the end.
class secret_text {
public:
    /// Failure: throws std::bad_alloc, also when that heap is full.
    explicit secret_text(std::size_t capacity);
    secret_text(secret_text&& other) noexcept;
    secret_text& operator=(secret_text&&) = delete;
    ~secret_text();

    char* data() noexcept { return data_; }
    std::size_t capacity() const noexcept { return capacity_; }
    void set_size(std::size_t size) noexcept { size_ = size; }
    std::string_view text() const noexcept { return {data_, size_}; }

private:
    char* data_;
    std::size_t capacity_;
    std::size_t size_ = 0;
};

// All sentences begin with `name`, which is the path, or says what text it is.

/// What a secret file should be, for sentences, and how long it may be.
struct secret_kind {
    const char* what = "a private key";
    std::size_t most_bytes = limits::most_key_bytes;
    bool says_whom_to_trust = false;
};

/// A file with keys, read straight into such memory.
/// Failure: `not_found` if it cannot be read; `denied` if others than its owner may read or write
///          it, or everybody may put another in place of one that says whom to trust; `invalid` if
///          it is too long, or a folder, FIFO or device.
result<secret_text> read_secret_file(const std::string& path, const secret_kind& expected = {});
/// Any other PEM file, or one that is `expected`. Failure: `not_found`, `invalid` as above.
result<std::string> read_pem_file(const std::string& path, const char* expected = "a file in PEM");
/// The file of those who are trusted. Failure: as read_pem_file(), and `denied` if everybody on
/// this host may write it, or put another in its place.
result<std::string> read_trusted_file(const std::string& path,
                                      const char* expected = "a file in PEM");

/// The private key in PEM text. No copy of the text is left behind.
/// Failure: `invalid`, also for one that is encrypted.
result<pkey_ptr> private_key_in(std::string_view pem, const std::string& name);
/// All certificates, revocation lists, and the one request; what else is in the text is passed
/// over. Failure: `invalid` if there is none, or one cannot be parsed. A revocation list may be
/// absent.
result<std::vector<x509_ptr>> certificates_in(std::string_view pem, const std::string& name);
result<std::vector<x509_crl_ptr>> revocation_lists_in(std::string_view pem,
                                                      const std::string& name);
result<x509_request_ptr> request_in(std::string_view pem, const std::string& name);

/// The PEM text. Failure: throws std::bad_alloc.
std::string to_pem(X509& certificate);
std::string to_pem(X509_CRL& list);
std::string to_pem(X509_REQ& request);
/// PKCS #8, not encrypted.
secret_text to_pem(EVP_PKEY& key);

}  // namespace amalgam::detail
