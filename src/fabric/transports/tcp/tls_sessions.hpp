#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include <amalgam/fabric/credentials.hpp>

#include "fabric/trust/tls/tls_contexts.hpp"
#include "fabric/trust/tls/tls_session.hpp"

namespace amalgam::detail {

/// Makes the TLS sessions of a port, and keeps what later ones may resume.
///
/// Threads: the port's thread.
/// Failure: connect() and accept() throw std::bad_alloc, and error for a host that cannot be one.
class tls_sessions {
public:
    /// Addresses of which a ticket is kept.
    static constexpr std::size_t max_tickets = 1024;
    /// A step may take signatures and key exchanges, up to 0.7 ms; so many are taken between two
    /// looks at the connections that stand.
    static constexpr int steps_per_round = 4;

    explicit tls_sessions(std::shared_ptr<const credentials> trust);

    /// For a socket connected to `host`, which was looked up as `address`.
    std::unique_ptr<tls_session> connect(int fd, const std::string& host,
                                         const std::string& address);
    std::unique_ptr<tls_session> accept(int fd);
    /// The next connection to `address` may resume this one. Out of memory, it does not.
    void keep(const std::string& address, const tls_session& of) noexcept;

    void forget(const std::string& address) noexcept { tickets_.erase(address); }

    /// False: enough steps of handshakes in this round; the rest wait for the next.
    bool may_step(std::uint64_t round) noexcept;
    const credentials& trust() const noexcept { return *trust_; }

private:
    std::shared_ptr<const credentials> trust_;
    tls_contexts contexts_;
    tls_record record_;
    ssl_context_ptr of_tickets_;  ///< Held, so that no other context gets its address.
    std::unordered_map<std::string, tls_ticket> tickets_;
    std::uint64_t round_ = 0;
    int steps_ = 0;
};

}  // namespace amalgam::detail
