#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/core/unique_fd.hpp>

#include "fabric/sockets/binding.hpp"
#include "fabric/sockets/poller.hpp"
#include "fabric/transports/tcp/hello.hpp"
#include "fabric/transports/tcp/tls_sessions.hpp"

namespace amalgam::detail {

/// Settings shared by all handshakes of a port.
struct handshake_setting {
    poller& events;
    const binding& from;
    const hello& ours;
    std::chrono::milliseconds limit;  ///< For one whole handshake.
    tls_sessions* tls = nullptr;      ///< Null: without TLS.
};

/// Turns an address or an accepted socket into a connection that may carry frames: connects, trying
/// one address after the other, then shakes hands by TLS if the port has it, then exchanges hellos.
///
/// With TLS, events are level-triggered until the state is `complete`, so one that is left for
/// later is reported again.
///
/// Owner:   holds the socket until take_socket().
/// Threads: the port's thread.
/// Failure: see why() if the state is `failed`.
class handshake {
public:
    enum class state : std::uint8_t { waiting, complete, failed };
    /// Events watched on an established connection. Edge-triggered: the port remembers them.
    static constexpr std::uint32_t events_of_a_connection = EPOLLIN | EPOLLRDHUP | EPOLLET;

    /// Connects to `target`, which is its name in messages; `host` is the host in it. `source` gets
    /// the events.
    handshake(const handshake_setting& setting, event_source& source, std::string target,
              std::string host = {});
    /// For an accepted socket.
    handshake(const handshake_setting& setting, event_source& source, std::string target,
              unique_fd accepted);

    /// Starts to connect to these addresses, in this order.
    state dial(std::vector<socket_address> to) noexcept;
    /// The addresses could not be resolved.
    state give_up(const failure& why) noexcept;
    /// Its slot is needed for another connection.
    state evict() noexcept;
    /// An event occurred on the socket.
    state ready(std::uint32_t events) noexcept;
    /// deadline() has passed.
    state late(clock::time_point now) noexcept;

    clock::time_point deadline() const noexcept { return deadline_; }
    const failure& why() const noexcept { return why_; }
    /// It failed as TLS, or the peer in it, is not as it must be.
    bool is_refused() const noexcept { return is_refused_; }
    const hello& theirs() const noexcept { return reader_.result(); }
    unique_fd take_socket() noexcept { return std::move(socket_); }
    /// Null without TLS.
    std::unique_ptr<tls_session> take_session() noexcept { return std::move(session_); }
    /// Ends an attempt that is no longer wanted.
    void abandon() noexcept;

private:
    enum class step : std::uint8_t { resolving, connecting, tls, hello };
    static constexpr std::uint32_t events_of_tls = EPOLLIN | EPOLLRDHUP;

    template <typename Step>
    state guarded(Step next) noexcept;
    state dial_next(int last_error);
    state connected();
    state shake_hands();
    state read_hello();
    bool say_hello();
    state fail(errc code, int native, const std::string& what);
    state fail_session(const failure& why);
    void watch_room();

    const handshake_setting& setting_;
    event_source& source_;
    std::string target_;
    bool accepted_;
    step step_;
    bool watches_room_ = false;
    bool is_refused_ = false;
    unique_fd socket_;
    std::string host_;
    std::unique_ptr<tls_session> session_;  ///< After connecting, with TLS.
    std::vector<socket_address> left_;      ///< Still to be tried, next one last.
    clock::time_point end_;
    clock::time_point deadline_;  ///< Of this attempt; end_ is for all.
    hello_reader reader_;
    failure why_;
};

}  // namespace amalgam::detail
