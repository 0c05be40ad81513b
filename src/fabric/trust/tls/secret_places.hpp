#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "fabric/trust/openssl/openssl.hpp"
#include "fabric/trust/tls/traffic_key.hpp"

namespace amalgam::detail {

/// Where in its SSL OpenSSL keeps the secrets of the records of the client and of the server.
///
/// It tells them by a callback only, as text, by sprintf() for each byte: a fifteenth of a
/// handshake that resumes another. So some are heard, and looked for in the memory of their SSL.
/// Once those of two connections were at the same places, and nowhere else, all others are read
/// there, since one library has one layout. Where it is never so, they are heard as before.
///
/// Threads: all members may run concurrently.
class secret_places {
public:
    /// Those of the OpenSSL of this process.
    static secret_places& of_process() noexcept;

    bool are_known() const noexcept { return known_.load(std::memory_order_acquire) != 0; }
    /// What was heard of a connection that is not over.
    void learn(SSL* of, const traffic_secret& client, const traffic_secret& server) noexcept;
    /// Precondition: the places are known, and the handshake is complete. False: `of` is not as
    /// long as those that were learned from.
    bool read(SSL* of, std::size_t bytes, traffic_secret& client,
              traffic_secret& server) const noexcept;

private:
    struct layout {
        std::uint16_t client_at = 0, server_at = 0;  ///< 0: not known.
        bool operator==(const layout&) const noexcept = default;
    };
    static layout found_in(SSL* of, const traffic_secret& client,
                           const traffic_secret& server) noexcept;

    std::mutex lock_;
    layout last_;
    bool is_hopeless_ = false;
    std::atomic<std::uint32_t> known_{0};  ///< A layout; 0: not known.
};

}  // namespace amalgam::detail
