#include "fabric/trust/tls/traffic_key.hpp"

#include <cstring>
#include <new>

#include <amalgam/core/detail/text.hpp>

namespace amalgam::detail {

/// What a cipher suite is made of. Looked up once, as OpenSSL by itself does at each use.
struct traffic_key::cipher_suite {
    cipher_suite(const char* cipher_name, const char* digest_name, std::uint8_t key,
                 std::uint8_t digest, std::uint8_t block) noexcept
        : cipher(EVP_CIPHER_fetch(nullptr, cipher_name, nullptr)),
          hash(EVP_MD_fetch(nullptr, digest_name, nullptr)),
          key_bytes(key),
          hash_bytes(digest),
          block_bytes(block) {}

    const EVP_CIPHER* const cipher;  ///< Null: OpenSSL has none. Never freed.
    const EVP_MD* const hash;
    const std::uint8_t key_bytes, hash_bytes, block_bytes;
};

namespace {

// Both: RFC 8446, B.4.
constexpr std::uint16_t aes_128_gcm = 0x1301, aes_256_gcm = 0x1302, chacha20_poly1305 = 0x1303;

const unsigned char* bytes_at(const std::byte* at) noexcept {
    return reinterpret_cast<const unsigned char*>(at);
}
unsigned char* bytes_at(std::byte* at) noexcept {
    return reinterpret_cast<unsigned char*>(at);
}

/// HMAC (RFC 2104) of less than 128 bytes. OpenSSL's own looks three names up at each call, which
/// is most of its time for so little.
bool hmac(const EVP_MD* hash, std::size_t block, std::size_t size, const traffic_secret& key,
          const unsigned char* text, std::size_t bytes, unsigned char* into) noexcept {
    unsigned char inner[128 + 128], outer[128 + 64];
    std::memset(inner, 0x36, block);
    std::memset(outer, 0x5c, block);
    for (std::size_t i = 0; i < key.size; ++i) {
        inner[i] ^= key.bytes[i];
        outer[i] ^= key.bytes[i];
    }
    std::memcpy(inner + block, text, bytes);
    unsigned of_inner = 0, of_outer = 0;
    const bool done =
        EVP_Digest(inner, block + bytes, outer + block, &of_inner, hash, nullptr) == 1 &&
        of_inner == size && EVP_Digest(outer, block + size, into, &of_outer, hash, nullptr) == 1;
    OPENSSL_cleanse(inner, sizeof inner);
    OPENSSL_cleanse(outer, sizeof outer);
    return done;
}

}  // namespace

/// Null: none that is known.
const traffic_key::cipher_suite* traffic_key::suite_of(const SSL_CIPHER& cipher) noexcept {
    switch (SSL_CIPHER_get_protocol_id(&cipher)) {
        case aes_128_gcm: {
            static const cipher_suite made("AES-128-GCM", "SHA256", 16, 32, 64);
            return &made;
        }
        case aes_256_gcm: {
            static const cipher_suite made("AES-256-GCM", "SHA384", 32, 48, 128);
            return &made;
        }
        case chacha20_poly1305: {
            static const cipher_suite made("ChaCha20-Poly1305", "SHA256", 32, 32, 64);
            return &made;
        }
        default:
            return nullptr;
    }
}

bool traffic_secret::read_hex(std::string_view digits) noexcept {
    if (digits.size() % 2 != 0 || digits.size() > 2 * bytes.size()) return false;
    for (std::size_t i = 0; i < digits.size(); i += 2) {
        const int high = hex_digit(digits[i]), low = hex_digit(digits[i + 1]);
        if (high < 0 || low < 0) return false;
        bytes[i / 2] = static_cast<unsigned char>(high << 4 | low);
    }
    size = static_cast<std::uint8_t>(digits.size() / 2);
    return true;
}

void traffic_secret::erase() noexcept {
    if (size != 0) OPENSSL_cleanse(bytes.data(), bytes.size());
    size = 0;
}

std::unique_ptr<traffic_key> traffic_key::make(const SSL_CIPHER& cipher,
                                               const traffic_secret& secret, use for_what,
                                               std::uint64_t number) noexcept {
    const no_errors_left at_the_end;
    const cipher_suite* const by = suite_of(cipher);
    if (by == nullptr || by->cipher == nullptr || by->hash == nullptr) return nullptr;
    if (secret.size != by->hash_bytes) return nullptr;
    std::unique_ptr<traffic_key> made(new (std::nothrow) traffic_key(*by, for_what));
    if (made == nullptr || made->context_ == nullptr) return nullptr;
    made->secret_.bytes = secret.bytes;
    made->secret_.size = secret.size;
    if (!made->set(number)) return nullptr;
    return made;
}

traffic_key::traffic_key(const cipher_suite& by, use for_what) noexcept
    : by_(by), context_(EVP_CIPHER_CTX_new()), protects_(for_what == use::to_protect) {}

traffic_key::~traffic_key() {
    OPENSSL_cleanse(iv_, sizeof iv_);
}

/// HKDF-Expand-Label (RFC 8446, 7.1) of at most a digest's size, without a context.
bool traffic_key::expand(const char* label, unsigned char* into, std::size_t bytes) const noexcept {
    constexpr char prefix[] = "tls13 ";
    unsigned char text[64] = {0, static_cast<unsigned char>(bytes)};
    const std::size_t length = std::strlen(label);
    std::size_t at = 2;
    text[at++] = static_cast<unsigned char>(sizeof prefix - 1 + length);
    std::memcpy(text + at, prefix, sizeof prefix - 1);
    at += sizeof prefix - 1;
    std::memcpy(text + at, label, length);
    at += length;
    text[at++] = 0;  // No context.
    text[at++] = 1;  // The first block of HKDF.
    unsigned char all[48];
    const bool done = hmac(by_.hash, by_.block_bytes, by_.hash_bytes, secret_, text, at, all);
    if (done) std::memcpy(into, all, bytes);
    OPENSSL_cleanse(all, sizeof all);
    return done;
}

bool traffic_key::set(std::uint64_t number) noexcept {
    unsigned char key[32];
    const bool done = expand("key", key, by_.key_bytes) && expand("iv", iv_, sizeof iv_) &&
                      EVP_CipherInit_ex(context_.get(), by_.cipher, nullptr, key, nullptr,
                                        protects_ ? 1 : 0) == 1;
    OPENSSL_cleanse(key, sizeof key);
    number_ = number;
    return done;
}

bool traffic_key::next() noexcept {
    const no_errors_left at_the_end;
    traffic_secret following;
    if (!expand("traffic upd", following.bytes.data(), secret_.size)) return false;
    std::memcpy(secret_.bytes.data(), following.bytes.data(), secret_.size);
    following.size = secret_.size;  // So that it is erased.
    return set(0);
}

/// The nonce is the record's number, over the IV; the header is authenticated.
bool traffic_key::begin_record(const unsigned char* header) noexcept {
    unsigned char nonce[sizeof iv_];
    std::memcpy(nonce, iv_, sizeof nonce);
    for (int i = 0; i < 8; ++i)
        nonce[sizeof nonce - 1 - static_cast<std::size_t>(i)] ^=
            static_cast<unsigned char>(number_ >> (8 * i));
    ++number_;
    int bytes = 0;
    return EVP_CipherInit_ex(context_.get(), nullptr, nullptr, nullptr, nonce, -1) == 1 &&
           EVP_CipherUpdate(context_.get(), nullptr, &bytes, header, header_bytes) == 1;
}

bool traffic_key::protect(record_kind kind, const_bytes plain, std::byte* to) noexcept {
    const std::size_t length = plain.size() + 1 + tag_bytes;
    unsigned char* const header = bytes_at(to);
    header[0] = static_cast<unsigned char>(record_kind::data);  // Of all; the real one is inside.
    header[1] = header[2] = 3;
    header[3] = static_cast<unsigned char>(length >> 8);
    header[4] = static_cast<unsigned char>(length);
    unsigned char* at = header + header_bytes;
    const auto inner = static_cast<unsigned char>(kind);
    int bytes = 0;
    if (!begin_record(header)) return false;
    if (!plain.empty() && EVP_CipherUpdate(context_.get(), at, &bytes, bytes_at(plain.data()),
                                           static_cast<int>(plain.size())) != 1)
        return false;
    at += plain.size();
    return EVP_CipherUpdate(context_.get(), at, &bytes, &inner, 1) == 1 &&
           EVP_CipherFinal_ex(context_.get(), at + 1, &bytes) == 1 &&
           EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_GET_TAG, tag_bytes, at + 1) == 1;
}

traffic_key::opened traffic_key::open(mutable_bytes record) noexcept {
    if (record.size() < more_bytes) return {};
    unsigned char* const header = bytes_at(record.data());
    unsigned char* const at = header + header_bytes;
    std::size_t size = record.size() - header_bytes - tag_bytes;
    int bytes = 0;
    if (EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_SET_TAG, tag_bytes, at + size) != 1 ||
        !begin_record(header) ||
        EVP_CipherUpdate(context_.get(), at, &bytes, at, static_cast<int>(size)) != 1 ||
        EVP_CipherFinal_ex(context_.get(), at + size, &bytes) != 1) {
        clear_openssl_errors();
        return {};
    }
    // The kind is the last byte that is not 0: what follows is padding.
    while (size > 0 && at[size - 1] == 0)
        --size;
    if (size == 0 || size - 1 > max_plain_bytes) return {};
    return {static_cast<record_kind>(at[size - 1]), {record.data() + header_bytes, size - 1}};
}

}  // namespace amalgam::detail
