#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/core/unique_fd.hpp>

#include "fabric/transports/tcp/binding.hpp"
#include "fabric/transports/tcp/hello.hpp"
#include "fabric/transports/tcp/poller.hpp"

namespace amalgam::detail {

/// What all handshakes of a port have in common.
struct handshake_setting {
    poller& events;
    const binding& from;
    const hello& ours;
    std::chrono::milliseconds limit;  ///< For one handshake, from its beginning.
};

/// The way from an address, or from an accepted socket, to a connection that may carry frames:
/// connect, trying one address after the other, then a hello each way.
///
/// Owner:   holds the socket until take_socket().
/// Threads: the port's.
/// Failure: why() says it, when the state is `failed`.
class handshake {
public:
    enum class state : std::uint8_t { waiting, complete, failed };
    /// What an established connection is watched for. Edges only: the port remembers.
    static constexpr std::uint32_t events_of_a_connection = EPOLLIN | EPOLLRDHUP | EPOLLET;

    /// For a connection to be made to `target`, named so in sentences. `source` gets the events.
    handshake(const handshake_setting& setting, event_source& source, std::string target);
    /// For a socket that was accepted.
    handshake(const handshake_setting& setting, event_source& source, std::string target,
              unique_fd accepted);

    /// Starts to connect to these, in this order.
    state dial(std::vector<socket_address> to) noexcept;
    /// The addresses could not be found out.
    state give_up(const failure& why) noexcept;
    /// Its place is needed for somebody else.
    state evict() noexcept;
    /// Something happened on the socket.
    state ready(std::uint32_t events) noexcept;
    /// The time of deadline() has come.
    state late(clock::time_point now) noexcept;

    clock::time_point deadline() const noexcept { return deadline_; }
    const failure& why() const noexcept { return why_; }
    const hello& theirs() const noexcept { return reader_.result(); }
    unique_fd take_socket() noexcept { return std::move(socket_); }
    /// Ends an attempt that nobody waits for any more.
    void abandon() noexcept;

private:
    enum class step : std::uint8_t { resolving, connecting, greeting };

    template <typename Step>
    state guarded(Step next) noexcept;
    state dial_next(int last_error);
    state connected();
    state read_hello();
    bool say_hello() noexcept;
    state fail(errc code, int native, const std::string& what);

    const handshake_setting& setting_;
    event_source& source_;
    std::string target_;
    bool accepted_;
    step step_;
    unique_fd socket_;
    std::vector<socket_address> left_;  ///< Still to be tried, the next one last.
    clock::time_point end_;
    clock::time_point deadline_;  ///< Of this attempt; end_ is that of all.
    hello_reader reader_;
    failure why_;
};

}  // namespace amalgam::detail
