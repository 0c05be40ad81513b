#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <amalgam/core/bytes.hpp>

#include "fabric/trust/openssl/openssl.hpp"
#include "fabric/trust/tls/key_schedule.hpp"
#include "fabric/trust/tls/secret_memory.hpp"

namespace amalgam::detail {

/// What a record of TLS holds. Travels on the wire: never renumber.
enum class record_kind : std::uint8_t { none = 0, alert = 21, handshake = 22, data = 23 };

/// Protects, or opens, the records of one direction of a TLS 1.3 connection (RFC 8446, 5.2).
///
/// The number of a record is part of its nonce and does not travel, so one that was repeated, left
/// out or moved is opened under another number than it was protected with, and fails.
///
/// Threads: one at a time.
/// Cost:    no allocation but in make() and next().
/// Memory:  the secret is where no core dump has it. The key that the cipher is prepared with is in
///          ordinary memory, as OpenSSL allocates it, and wiped in the end.
class traffic_key : public in_secret_memory {
public:
    enum class use : std::uint8_t { to_protect, to_open };
    static constexpr std::size_t header_bytes = 5;
    static constexpr std::size_t tag_bytes = 16;
    /// How much longer a record is than what is in it: the kind is one byte.
    static constexpr std::size_t more_bytes = header_bytes + 1 + tag_bytes;
    static constexpr std::size_t max_plain_bytes = 16384;
    /// Of what follows a header. A peer may pad its records up to this.
    static constexpr std::size_t max_protected_bytes = max_plain_bytes + 256;

    /// `number` records passed under this secret before. Null: OpenSSL has no such cipher, or no
    /// memory.
    static std::unique_ptr<traffic_key> make(const SSL_CIPHER& cipher, const traffic_secret& secret,
                                             use for_what, std::uint64_t number = 0) noexcept;
    ~traffic_key();
    traffic_key(const traffic_key&) = delete;

    /// Writes plain.size() + more_bytes to `to`. False: OpenSSL refused.
    bool protect(record_kind kind, const_bytes plain, std::byte* to) noexcept;

    struct opened {
        record_kind kind = record_kind::none;  ///< None: it is not the record that is due.
        const_bytes plain;
    };
    /// Opens a whole record, header and all, where it stands.
    opened open(mutable_bytes record) noexcept;

    /// The secret that follows this one; records count from 0 again. False: OpenSSL refused.
    bool next() noexcept;

private:
    traffic_key(const cipher_suite& by, use for_what) noexcept;
    bool set(std::uint64_t number) noexcept;
    bool begin_record(const unsigned char* header) noexcept;

    struct free_context {
        void operator()(EVP_CIPHER_CTX* p) const noexcept { EVP_CIPHER_CTX_free(p); }
    };
    const cipher_suite& by_;
    std::unique_ptr<EVP_CIPHER_CTX, free_context> context_;
    std::uint64_t number_ = 0;  ///< Of the next record.
    unsigned char iv_[12] = {};
    bool protects_ = false;
    traffic_secret secret_;
};

}  // namespace amalgam::detail
