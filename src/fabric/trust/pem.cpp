#include "fabric/trust/pem.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <span>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <sys/stat.h>
#include <unistd.h>

#include <amalgam/core/detail/read_file.hpp>
#include <amalgam/core/unique_fd.hpp>

#include "fabric/limits.hpp"

namespace amalgam::detail {

secret_text::secret_text(std::size_t capacity)
    : data_((use_secure_heap(), static_cast<char*>(OPENSSL_secure_zalloc(capacity + 1)))),
      capacity_(capacity) {
    if (data_ == nullptr) throw std::bad_alloc();
}

secret_text::secret_text(secret_text&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), capacity_(other.capacity_), size_(other.size_) {}

secret_text::~secret_text() {
    OPENSSL_secure_clear_free(data_, capacity_ + 1);
}

namespace {

failure cannot_read(const std::string& path, int why) {
    return {{errc::not_found, why},
            fmt::format("\"{}\" cannot be read ({}), expected a file in PEM; `amalgam key new` "
                        "makes them",
                        path, std::strerror(why))};
}

/// A view of `pem` as OpenSSL reads it; copies nothing.
openssl_ptr<BIO> reader_of(std::string_view pem) {
    const auto size = static_cast<int>(std::min(pem.size(), limits::most_pem_bytes));
    openssl_ptr<BIO> reader(BIO_new_mem_buf(pem.data(), size));
    if (reader == nullptr) throw std::bad_alloc();
    return reader;
}

/// Instead of asking at the terminal.
int no_passphrase(char*, int, int, void*) {
    return 0;
}

/// Whether reading ended because the text did. Empties the queue of errors.
bool is_end_of_text() {
    const unsigned long code = ERR_peek_last_error();
    ERR_clear_error();
    return ERR_GET_LIB(code) == ERR_LIB_PEM && ERR_GET_REASON(code) == PEM_R_NO_START_LINE;
}

failure damaged(const std::string& name, const char* what) {
    return {{errc::invalid},
            fmt::format("{} holds a damaged {}, expected it in PEM, as `openssl x509`, `crl` or "
                        "`req` writes it",
                        name, what)};
}

template <typename T>
result<std::vector<openssl_ptr<T>>> all_in(std::string_view pem, const std::string& name,
                                           T* (*read)(BIO*, T**, pem_password_cb*, void*),
                                           const char* what) {
    ERR_clear_error();
    const openssl_ptr<BIO> from = reader_of(pem);
    std::vector<openssl_ptr<T>> all;
    while (openssl_ptr<T> one{read(from.get(), nullptr, &no_passphrase, nullptr)}) {
        if (all.size() == limits::most_pem_parts)
            return {errc::invalid, fmt::format("{} holds more than {} of what it is read for, a {}",
                                               name, limits::most_pem_parts, what)};
        all.push_back(std::move(one));
    }
    if (!is_end_of_text()) return damaged(name, what);
    return all;
}

failure nothing_in(const std::string& name, std::string_view what, std::string_view label) {
    return {{errc::invalid},
            fmt::format("{} holds no {}, expected PEM text that begins \"-----BEGIN {}-----\"",
                        name, what, label)};
}

template <typename T>
std::string written(int (*write)(BIO*, const T*), const T& what) {
    const openssl_ptr<BIO> to(BIO_new(BIO_s_mem()));
    if (to == nullptr || write(to.get(), &what) != 1) throw std::bad_alloc();
    char* text = nullptr;
    const long size = BIO_get_mem_data(to.get(), &text);
    return {text, static_cast<std::size_t>(size)};
}

}  // namespace

result<secret_text> read_secret_file(const std::string& path) {
    const unique_fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat about {};
    if (!file || ::fstat(file.get(), &about) != 0) return cannot_read(path, errno);
    if (!S_ISREG(about.st_mode))
        return {errc::invalid, fmt::format("\"{}\" is not a file, expected a private key", path)};
    if ((about.st_mode & 077) != 0)
        return {errc::denied,
                fmt::format("\"{}\" is open to others (mode {:04o}), expected a private key that "
                            "only its owner can read; example: chmod 600 {}",
                            path, about.st_mode & 07777, path)};
    // One more than it should have, to see that it is longer.
    secret_text read(std::min(static_cast<std::size_t>(about.st_size), limits::most_key_bytes) + 1);
    std::size_t size = 0;
    while (size < read.capacity()) {
        const ssize_t got = ::read(file.get(), read.data() + size, read.capacity() - size);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return cannot_read(path, errno);
        if (got == 0) break;
        size += static_cast<std::size_t>(got);
    }
    if (size > limits::most_key_bytes)
        return {errc::invalid, fmt::format("\"{}\" is longer than {} bytes, expected a private key",
                                           path, limits::most_key_bytes)};
    read.set_size(size);
    return read;
}

result<std::string> read_pem_file(const std::string& path) {
    const auto bytes = read_file(path, limits::most_pem_bytes);
    if (!bytes && bytes.code() == errc::not_found) return cannot_read(path, errno);
    if (!bytes)
        return {errc::invalid,
                fmt::format("\"{}\" {}, expected a file in PEM", path, bytes.sentence())};
    return std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size());
}

result<pkey_ptr> private_key_in(std::string_view pem, const std::string& name) {
    use_secure_heap();
    ERR_clear_error();
    if (pem.find("ENCRYPTED") != pem.npos)
        return {errc::invalid,
                fmt::format("{} is encrypted, expected a private key without a passphrase, in a "
                            "file that only its owner can read; example: openssl pkey -in key.pem "
                            "-out plain.pem",
                            name)};
    // Not PEM_read_bio_PrivateKey(), which leaves lines of the text in freed memory.
    unsigned char* der = nullptr;
    long size = 0;
    const openssl_ptr<BIO> from = reader_of(pem);
    if (PEM_bytes_read_bio_secmem(&der, &size, nullptr, PEM_STRING_EVP_PKEY, from.get(),
                                  &no_passphrase, nullptr) != 1) {
        if (is_end_of_text()) return nothing_in(name, "private key", "PRIVATE KEY");
        return damaged(name, "private key");
    }
    const unsigned char* at = der;
    pkey_ptr key(d2i_AutoPrivateKey(nullptr, &at, size));
    OPENSSL_secure_clear_free(der, static_cast<std::size_t>(size));
    ERR_clear_error();
    if (key == nullptr) return damaged(name, "private key");
    return key;
}

result<std::vector<x509_ptr>> certificates_in(std::string_view pem, const std::string& name) {
    auto all = all_in<X509>(pem, name, &PEM_read_bio_X509, "certificate");
    if (all && all->empty()) return nothing_in(name, "certificate", "CERTIFICATE");
    return all;
}

result<std::vector<x509_crl_ptr>> revocation_lists_in(std::string_view pem,
                                                      const std::string& name) {
    auto all = all_in<X509_CRL>(pem, name, &PEM_read_bio_X509_CRL, "revocation list");
    if (all && all->empty() && pem.find_first_not_of(" \t\r\n") != pem.npos)
        return nothing_in(name, "revocation list", "X509 CRL");
    return all;
}

result<x509_request_ptr> request_in(std::string_view pem, const std::string& name) {
    auto all = all_in<X509_REQ>(pem, name, &PEM_read_bio_X509_REQ, "request");
    if (!all) return all.why();
    if (all->empty()) return nothing_in(name, "request", "CERTIFICATE REQUEST");
    return std::move(all->front());
}

std::string to_pem(X509& certificate) {
    return written<X509>(&PEM_write_bio_X509, certificate);
}
std::string to_pem(X509_CRL& list) {
    return written<X509_CRL>(&PEM_write_bio_X509_CRL, list);
}
std::string to_pem(X509_REQ& request) {
    return written<X509_REQ>(&PEM_write_bio_X509_REQ, request);
}

secret_text to_pem(EVP_PKEY& key) {
    // Not PEM_write_bio_PrivateKey(): it writes through ordinary memory.
    unsigned char* der = nullptr;
    PKCS8_PRIV_KEY_INFO* const info = EVP_PKEY2PKCS8(&key);
    const int size = info == nullptr ? -1 : i2d_PKCS8_PRIV_KEY_INFO(info, &der);
    PKCS8_PRIV_KEY_INFO_free(info);
    if (size < 0) throw std::bad_alloc();
    constexpr std::size_t line = 48;  // Becomes 64 characters.
    const std::string_view first = "-----BEGIN PRIVATE KEY-----\n";
    const std::string_view last = "-----END PRIVATE KEY-----\n";
    const auto bytes = static_cast<std::size_t>(size);
    secret_text text(first.size() + last.size() + (bytes / line + 1) * 66);
    char* at = std::copy(first.begin(), first.end(), text.data());
    for (std::size_t done = 0; done < bytes; done += line) {
        at += EVP_EncodeBlock(reinterpret_cast<unsigned char*>(at), der + done,
                              static_cast<int>(std::min(line, bytes - done)));
        *at++ = '\n';
    }
    at = std::copy(last.begin(), last.end(), at);
    text.set_size(static_cast<std::size_t>(at - text.data()));
    OPENSSL_clear_free(der, bytes);
    return text;
}

}  // namespace amalgam::detail
