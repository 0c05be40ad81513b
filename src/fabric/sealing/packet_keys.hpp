#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include <sodium.h>

#include <amalgam/core/bytes.hpp>

#include "fabric/packets/introducing_carrier.hpp"

namespace amalgam::detail {

/// How packets are sealed. A bit each; travels on the wire: never renumber.
enum class packet_cipher : std::uint8_t {
    aes_256_gcm = 1,        ///< Where the processor has instructions for it.
    xchacha20_poly1305 = 2  ///< Everywhere.
};

/// "AES-256-GCM".
std::string_view name(packet_cipher cipher) noexcept;
/// The bits of those that this machine has.
/// Failure: throws error{internal} if libsodium cannot start.
std::uint8_t ciphers_here();
/// The best of those that both ends have.
std::optional<packet_cipher> choose_cipher(std::uint8_t here, std::uint8_t there) noexcept;

/// Seals, or opens, the packets of one direction of a connection.
///
/// The number of a packet is its nonce and does not travel, as carriers keep the order: a packet
/// that was repeated, left out or moved is opened under another number than it was sealed with, and
/// fails like one that was changed. So does one that is sent back to its sender, as each direction
/// has its own key.
///
/// A key is replaced by a new one, derived from it, after `packets_per_key`. Packets have up to
/// 2^12 blocks of AES, so no key sees more than 2^32 of them; RFC 8446, 5.5 allows 2^34.5. The old
/// key is erased: who learns the present one cannot read what went before.
///
/// Threads: one at a time.
/// Cost:    no allocation.
class packet_key {
public:
    /// How much longer a sealed packet is.
    static constexpr std::size_t tag_bytes = 16;
    static constexpr std::uint64_t packets_per_key = std::uint64_t{1} << 20;

    packet_key(packet_cipher cipher, const link_secrets::key& secret) noexcept;
    packet_key(const packet_key&) = delete;
    ~packet_key();

    /// Writes plain.size() + tag_bytes to `to`.
    void seal(const_bytes plain, std::byte* to) noexcept;
    /// Writes sealed.size() - tag_bytes to `to`. False: it is not the packet that is due, and must
    /// be the last.
    bool open(const_bytes sealed, std::byte* to) noexcept;

private:
    void set_key() noexcept;
    void next_key() noexcept;
    void count() noexcept {
        if (++number_ == packets_per_key) next_key();
    }

    alignas(16) crypto_aead_aes256gcm_state prepared_{};  ///< Of AES: key_, expanded.
    unsigned char key_[32] = {};
    unsigned char chain_[32] = {};  ///< From which the next key comes.
    std::uint64_t number_ = 0;      ///< Of the next packet, under this key.
    packet_cipher cipher_;
};

/// Both directions, in memory that is locked, as far as RLIMIT_MEMLOCK allows, and in no core dump.
struct packet_keys {
    packet_keys(packet_cipher cipher, const link_secrets& secrets) noexcept
        : sending(cipher, secrets.sending), receiving(cipher, secrets.receiving) {}

    packet_key sending;
    packet_key receiving;
};

struct sodium_memory {
    void operator()(packet_keys* one) const noexcept {
        one->~packet_keys();
        sodium_free(one);  // Erases it.
    }
};
using packet_keys_ptr = std::unique_ptr<packet_keys, sodium_memory>;

/// Null: out of memory.
packet_keys_ptr make_packet_keys(packet_cipher cipher, const link_secrets& secrets) noexcept;

}  // namespace amalgam::detail
