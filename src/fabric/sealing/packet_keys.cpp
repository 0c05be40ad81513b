#include "fabric/sealing/packet_keys.hpp"

#include <cstring>
#include <new>

#include <amalgam/core/status.hpp>

namespace amalgam::detail {
namespace {

// What BLAKE2b makes of the chain: the next chain, and the key.
constexpr unsigned char step_label[] = "amalgam packet key";

const unsigned char* bytes_at(const std::byte* at) noexcept {
    return reinterpret_cast<const unsigned char*>(at);
}
unsigned char* bytes_at(std::byte* at) noexcept {
    return reinterpret_cast<unsigned char*>(at);
}

/// The number as a nonce of `Bytes`.
template <std::size_t Bytes>
struct nonce_of {
    explicit nonce_of(std::uint64_t number) noexcept { store_le(bytes, number); }
    unsigned char bytes[Bytes] = {};
};

}  // namespace

std::string_view name(packet_cipher cipher) noexcept {
    return cipher == packet_cipher::aes_256_gcm ? "AES-256-GCM" : "XChaCha20-Poly1305";
}

std::uint8_t ciphers_here() {
    if (sodium_init() < 0) throw error(errc::internal, "libsodium cannot start");
    auto all = static_cast<unsigned>(packet_cipher::xchacha20_poly1305);
    if (crypto_aead_aes256gcm_is_available() == 1)
        all |= static_cast<unsigned>(packet_cipher::aes_256_gcm);
    return static_cast<std::uint8_t>(all);
}

std::optional<packet_cipher> choose_cipher(std::uint8_t here, std::uint8_t there) noexcept {
    for (const auto each : {packet_cipher::aes_256_gcm, packet_cipher::xchacha20_poly1305})
        if ((here & there & static_cast<std::uint8_t>(each)) != 0) return each;
    return std::nullopt;
}

packet_key::packet_key(packet_cipher cipher, const link_secrets::key& secret) noexcept
    : cipher_(cipher) {
    static_assert(sizeof chain_ == sizeof secret);
    std::memcpy(chain_, secret.data(), sizeof chain_);
    next_key();
}

packet_key::~packet_key() {
    sodium_memzero(&prepared_, sizeof prepared_);
    sodium_memzero(key_, sizeof key_);
    sodium_memzero(chain_, sizeof chain_);
}

void packet_key::next_key() noexcept {
    unsigned char both[sizeof chain_ + sizeof key_];
    crypto_generichash(both, sizeof both, step_label, sizeof step_label - 1, chain_, sizeof chain_);
    std::memcpy(chain_, both, sizeof chain_);
    std::memcpy(key_, both + sizeof chain_, sizeof key_);
    sodium_memzero(both, sizeof both);
    if (cipher_ == packet_cipher::aes_256_gcm) crypto_aead_aes256gcm_beforenm(&prepared_, key_);
    number_ = 0;
}

void packet_key::seal(const_bytes plain, std::byte* to) noexcept {
    if (cipher_ == packet_cipher::aes_256_gcm) {
        const nonce_of<crypto_aead_aes256gcm_NPUBBYTES> nonce(number_);
        crypto_aead_aes256gcm_encrypt_afternm(bytes_at(to), nullptr, bytes_at(plain.data()),
                                              plain.size(), nullptr, 0, nullptr, nonce.bytes,
                                              &prepared_);
    } else {
        const nonce_of<crypto_aead_xchacha20poly1305_ietf_NPUBBYTES> nonce(number_);
        crypto_aead_xchacha20poly1305_ietf_encrypt(bytes_at(to), nullptr, bytes_at(plain.data()),
                                                   plain.size(), nullptr, 0, nullptr, nonce.bytes,
                                                   key_);
    }
    count();
}

bool packet_key::open(const_bytes sealed, std::byte* to) noexcept {
    if (sealed.size() < tag_bytes) return false;
    int failed = -1;
    if (cipher_ == packet_cipher::aes_256_gcm) {
        const nonce_of<crypto_aead_aes256gcm_NPUBBYTES> nonce(number_);
        failed = crypto_aead_aes256gcm_decrypt_afternm(bytes_at(to), nullptr, nullptr,
                                                       bytes_at(sealed.data()), sealed.size(),
                                                       nullptr, 0, nonce.bytes, &prepared_);
    } else {
        const nonce_of<crypto_aead_xchacha20poly1305_ietf_NPUBBYTES> nonce(number_);
        failed = crypto_aead_xchacha20poly1305_ietf_decrypt(bytes_at(to), nullptr, nullptr,
                                                            bytes_at(sealed.data()), sealed.size(),
                                                            nullptr, 0, nonce.bytes, key_);
    }
    if (failed != 0) return false;
    count();
    return true;
}

packet_keys_ptr make_packet_keys(packet_cipher cipher, const link_secrets& secrets) noexcept {
    // It puts what it gives to the end of a page: at a multiple of 16, as the size is one.
    static_assert(sizeof(packet_keys) % alignof(packet_keys) == 0);
    void* const memory = sodium_init() < 0 ? nullptr : sodium_malloc(sizeof(packet_keys));
    if (memory == nullptr) return nullptr;
    return packet_keys_ptr(new (memory) packet_keys(cipher, secrets));
}

}  // namespace amalgam::detail
