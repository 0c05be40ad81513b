#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/detail/memory.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/fabric/credentials.hpp>

namespace amalgam::detail {

/// The server's end of one TLS 1.3 connection over bytes that its owner moves. The client proves
/// nothing of itself, as browsers do not.
///
/// Threads: one at a time.
class tls_server_end {
public:
    ~tls_server_end();
    tls_server_end(const tls_server_end&) = delete;

    /// Appends what `received` says to `plain`, and what is to be sent because of it to `to_send`,
    /// also on failure. Failure: `unreachable` for what is no TLS, is refused, or follows the
    /// client's end; throws std::bad_alloc.
    result<void> take(std::string_view received, std::string& plain, std::string& to_send);
    /// Appends the ciphertext of `plain`. Precondition: take() has told something of the client.
    /// Failure: throws std::bad_alloc; throws error{unreachable} after a failure of take().
    void put(std::string_view plain, std::string& to_send);
    /// Appends that nothing follows.
    void end(std::string& to_send);

private:
    friend class tls_server;
    struct state;
    explicit tls_server_end(std::unique_ptr<state> made) noexcept;
    void collect(std::string& to_send);

    std::unique_ptr<state> state_;
};

/// What such connections are made from, always according to the credentials as they are now.
///
/// Threads: one at a time.
class tls_server {
public:
    /// Whether clients may be browsers, which take no Ed25519.
    enum class clients : std::uint8_t { any, browsers };

    /// Failure: throws error{unsupported} for pre-shared keys, for a certificate without a host and
    ///          for a key that such clients do not take; error{no_memory}.
    tls_server(std::shared_ptr<const credentials> of, clients which);
    ~tls_server();

    /// Failure: throws error{no_memory}.
    std::unique_ptr<tls_server_end> accept();
    /// Names and addresses by which clients may call it, as the certificate has them.
    const std::vector<std::string>& hosts() const noexcept;

private:
    struct state;
    std::unique_ptr<state> state_;
};

}  // namespace amalgam::detail
