#include "fabric/trust/tls/traffic_key.hpp"

#include <cstring>
#include <new>

namespace amalgam::detail {

static_assert(sizeof(traffic_key) <= in_secret_memory::most_bytes);

namespace {

const unsigned char* bytes_at(const std::byte* at) noexcept {
    return reinterpret_cast<const unsigned char*>(at);
}
unsigned char* bytes_at(std::byte* at) noexcept {
    return reinterpret_cast<unsigned char*>(at);
}

}  // namespace

std::unique_ptr<traffic_key> traffic_key::make(const SSL_CIPHER& cipher,
                                               const traffic_secret& secret, use for_what,
                                               std::uint64_t number) noexcept {
    const no_errors_left at_the_end;
    const cipher_suite* const by = cipher_suite::of(cipher);
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

bool traffic_key::set(std::uint64_t number) noexcept {
    unsigned char key[32];
    const bool done = by_.expand(secret_.value(), "key", {}, {key, by_.key_bytes}) &&
                      by_.expand(secret_.value(), "iv", {}, iv_) &&
                      EVP_CipherInit_ex(context_.get(), by_.cipher, nullptr, key, nullptr,
                                        protects_ ? 1 : 0) == 1;
    OPENSSL_cleanse(key, sizeof key);
    number_ = number;
    return done;
}

bool traffic_key::next() noexcept {
    const no_errors_left at_the_end;
    traffic_secret following;
    following.size = secret_.size;  // So that it is erased.
    if (!by_.expand(secret_.value(), "traffic upd", {}, {following.bytes.data(), following.size}))
        return false;
    secret_.bytes = following.bytes;
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
