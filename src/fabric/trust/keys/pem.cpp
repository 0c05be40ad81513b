#include "fabric/trust/keys/pem.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <sys/stat.h>

#include <amalgam/core/detail/open_folder.hpp>
#include <amalgam/core/detail/read_file.hpp>
#include <amalgam/core/unique_fd.hpp>

#include "fabric/limits.hpp"

namespace amalgam::detail {

secret_text::secret_text(std::size_t capacity) : capacity_(capacity) {
    use_secure_heap();
    const std::lock_guard hold(secure_heap_lock());
    data_ = static_cast<char*>(OPENSSL_secure_zalloc(capacity + 1));
    if (data_ == nullptr) throw std::bad_alloc();
}

secret_text::secret_text(secret_text&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), capacity_(other.capacity_), size_(other.size_) {}

secret_text::~secret_text() {
    if (data_ == nullptr) return;
    const std::lock_guard hold(secure_heap_lock());
    OPENSSL_secure_clear_free(data_, capacity_ + 1);
}

namespace {

failure cannot_read(const std::string& path, int why, const char* expected) {
    return {{errc::not_found, why},
            fmt::format("\"{}\" cannot be read ({}), expected {}; `amalgam key new` makes them",
                        path, std::strerror(why), expected)};
}

/// Opens what must be a file, and tells about it. A FIFO makes nobody wait for a writer, and a
/// device is not read.
result<unique_fd> open_file(const std::string& path, const char* expected, struct stat& about) {
    unique_fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!file || ::fstat(file.get(), &about) != 0) return cannot_read(path, errno, expected);
    if (!S_ISREG(about.st_mode))
        return {errc::invalid, fmt::format("\"{}\" is not a file, expected {}", path, expected)};
    return file;
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
    clear_openssl_errors();
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
    clear_openssl_errors();
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

// Private keys. OpenSSL's own readers and writers of PEM leave lines of the text in memory that was
// freed, and those of DER the number itself. So text is read and written here, Ed25519 keys, which
// are 32 bytes behind a constant, are written without OpenSSL's DER, and what reading DER has left
// is overwritten.

/// PKCS #8 around an Ed25519 key, by RFC 8410.
constexpr std::string_view ed25519_header(
    "\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20", 16);

/// What is between the lines that begin and end the first private key; empty without one.
std::optional<std::string_view> body_of_key(std::string_view pem) {
    constexpr std::string_view begin = "-----BEGIN ", rule = "-----", kind = "PRIVATE KEY";
    for (std::size_t at = 0; (at = pem.find(begin, at)) != pem.npos;) {
        at += begin.size();
        const std::size_t behind = pem.find(rule, at);
        if (behind == pem.npos) return std::nullopt;
        const std::string_view label = pem.substr(at, behind - at);
        if (!label.ends_with(kind) || label.find('\n') != label.npos) continue;
        const std::string_view rest = pem.substr(behind + rule.size());
        // Without its last line it is damaged, which the end of the base64 tells.
        return rest.substr(0, rest.find(rule));
    }
    return std::nullopt;
}

/// Six bits; 64 for what is no digit of base64.
unsigned base64_digit(char c) noexcept {
    if (c >= 'A' && c <= 'Z') return static_cast<unsigned>(c - 'A');
    if (c >= 'a' && c <= 'z') return static_cast<unsigned>(c - 'a' + 26);
    if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0' + 52);
    return c == '+' ? 62u : c == '/' ? 63u : 64u;
}

bool decode_base64(std::string_view text, secret_text& into) noexcept {
    std::size_t digits = 0, padding = 0, bytes = 0;
    std::uint32_t bits = 0;
    for (const char each : text) {
        if (each == '\n' || each == '\r' || each == ' ' || each == '\t') continue;
        padding += each == '=';
        const unsigned value = each == '=' ? 0 : base64_digit(each);
        if (value > 63 || (padding > 0 && each != '=') || padding > 2) return false;
        bits = bits << 6 | value;
        if (++digits % 4 != 0) continue;
        for (const unsigned shift : {16u, 8u, 0u})
            into.data()[bytes++] = static_cast<char>(bits >> shift & 0xff);
    }
    if (digits % 4 != 0 || bytes <= padding) return false;
    into.set_size(bytes - padding);
    return true;
}

/// Small blocks that this thread has freed are the first that it gets again.
void overwrite_freed_memory() noexcept {
    constexpr std::size_t most_bytes = 1024, step = 16, most_blocks = 8;
    for (std::size_t bytes = step; bytes <= most_bytes; bytes += step) {
        void* blocks[most_blocks];
        for (void*& each : blocks)
            each = OPENSSL_zalloc(bytes);
        for (void* each : blocks)
            OPENSSL_free(each);
    }
}

/// As PKCS #8. Failure: throws std::bad_alloc.
secret_text to_der(EVP_PKEY& key) {
    if (EVP_PKEY_is_a(&key, "ED25519") == 1) {
        secret_text der(ed25519_header.size() + 32);
        auto* const behind = reinterpret_cast<unsigned char*>(
            std::copy(ed25519_header.begin(), ed25519_header.end(), der.data()));
        std::size_t size = 32;
        if (EVP_PKEY_get_raw_private_key(&key, behind, &size) != 1) throw std::bad_alloc();
        der.set_size(der.capacity());
        return der;
    }
    unsigned char* made = nullptr;
    PKCS8_PRIV_KEY_INFO* const info = EVP_PKEY2PKCS8(&key);
    const int size = info == nullptr ? -1 : i2d_PKCS8_PRIV_KEY_INFO(info, &made);
    PKCS8_PRIV_KEY_INFO_free(info);
    if (size < 0) throw std::bad_alloc();
    const auto bytes = static_cast<std::size_t>(size);
    secret_text der(bytes);
    std::copy(made, made + bytes, reinterpret_cast<unsigned char*>(der.data()));
    der.set_size(bytes);
    OPENSSL_clear_free(made, bytes);
    return der;
}

template <typename T>
std::string written(int (*write)(BIO*, const T*), const T& what) {
    const openssl_ptr<BIO> to(BIO_new(BIO_s_mem()));
    if (to == nullptr || write(to.get(), &what) != 1) throw std::bad_alloc();
    char* text = nullptr;
    const long size = BIO_get_mem_data(to.get(), &text);
    return {text, static_cast<std::size_t>(size)};
}

failure writable_by_everybody(const std::string& path, mode_t mode) {
    return {{errc::denied},
            fmt::format("\"{}\" can be written by everybody on this host (mode {:04o}), who could "
                        "so decide whom to trust; example: chmod o-w {}",
                        path, mode & 07777, path)};
}

/// Of a file that says whom to trust: whether everybody could put another in its place.
result<void> check_folders_of(const std::string& path) {
    if (const auto open = open_folder_above(path))
        return writable_by_everybody(open->path, open->mode);
    return {};
}

}  // namespace

result<secret_text> read_secret_file(const std::string& path, const secret_kind& expected) {
    if (expected.says_whom_to_trust)
        if (const auto good = check_folders_of(path); !good) return good.why();
    struct stat about {};
    const auto file = open_file(path, expected.what, about);
    if (!file) return file.why();
    if ((about.st_mode & 077) != 0)
        return {errc::denied,
                fmt::format("\"{}\" is open to others (mode {:04o}), expected {} that only its "
                            "owner can read; example: chmod 600 {}",
                            path, about.st_mode & 07777, expected.what, path)};
    // One more than it should have, to see that it is longer.
    secret_text text(std::min(static_cast<std::size_t>(about.st_size), expected.most_bytes) + 1);
    const auto size =
        read_into(file->get(), std::as_writable_bytes(std::span(text.data(), text.capacity())));
    if (!size) return cannot_read(path, errno, expected.what);
    if (*size > expected.most_bytes)
        return {errc::invalid, fmt::format("\"{}\" is longer than {} bytes, expected {}", path,
                                           expected.most_bytes, expected.what)};
    text.set_size(*size);
    return text;
}

namespace {

/// Refuses a file that everybody may write, if it says whom to trust.
result<std::string> read_public(const std::string& path, bool says_whom_to_trust,
                                const char* expected) {
    struct stat about {};
    const auto file = open_file(path, expected, about);
    if (!file) return file.why();
    if (says_whom_to_trust && (about.st_mode & S_IWOTH) != 0)
        return writable_by_everybody(path, about.st_mode);
    std::string text;
    std::size_t room = static_cast<std::size_t>(about.st_size) + 1, used = 0;
    do {  // Again if it has grown meanwhile.
        room = std::min(room, limits::most_pem_bytes + 1);
        text.resize(room);
        const auto got =
            read_into(file->get(), std::as_writable_bytes(std::span(text).subspan(used)));
        if (!got) return cannot_read(path, errno, expected);
        used += *got;
    } while (used == std::exchange(room, 2 * room) && used <= limits::most_pem_bytes);
    if (used > limits::most_pem_bytes)
        return {errc::invalid, fmt::format("\"{}\" is longer than {} MiB, expected {}", path,
                                           limits::most_pem_bytes >> 20, expected)};
    text.resize(used);
    return text;
}

}  // namespace

result<std::string> read_pem_file(const std::string& path, const char* expected) {
    return read_public(path, false, expected);
}

result<std::string> read_trusted_file(const std::string& path, const char* expected) {
    if (const auto good = check_folders_of(path); !good) return good.why();
    return read_public(path, true, expected);
}

result<pkey_ptr> private_key_in(std::string_view pem, const std::string& name) {
    use_secure_heap();
    clear_openssl_errors();
    if (pem.find("ENCRYPTED") != pem.npos)
        return {errc::invalid,
                fmt::format("{} is encrypted, expected a private key without a passphrase, in a "
                            "file that only its owner can read; example: openssl pkey -in key.pem "
                            "-out plain.pem",
                            name)};
    const auto body = body_of_key(pem);
    if (!body) return nothing_in(name, "private key", "PRIVATE KEY");
    secret_text der(body->size() / 4 * 3 + 3);
    if (!decode_base64(*body, der)) return damaged(name, "private key");
    // Not EVP_PKEY_new_raw_private_key(), which keeps the key outside of the secure heap.
    const auto* at = reinterpret_cast<const unsigned char*>(der.text().data());
    pkey_ptr key(d2i_AutoPrivateKey(nullptr, &at, static_cast<long>(der.text().size())));
    overwrite_freed_memory();
    clear_openssl_errors();
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
    const secret_text der = to_der(key);
    const auto* from = reinterpret_cast<const unsigned char*>(der.text().data());
    constexpr std::size_t line = 48;  // Becomes 64 characters.
    const std::string_view first = "-----BEGIN PRIVATE KEY-----\n";
    const std::string_view last = "-----END PRIVATE KEY-----\n";
    const std::size_t bytes = der.text().size();
    secret_text text(first.size() + last.size() + (bytes / line + 1) * 66);
    char* at = std::copy(first.begin(), first.end(), text.data());
    for (std::size_t done = 0; done < bytes; done += line) {
        at += EVP_EncodeBlock(reinterpret_cast<unsigned char*>(at), from + done,
                              static_cast<int>(std::min(line, bytes - done)));
        *at++ = '\n';
    }
    at = std::copy(last.begin(), last.end(), at);
    text.set_size(static_cast<std::size_t>(at - text.data()));
    return text;
}

}  // namespace amalgam::detail
