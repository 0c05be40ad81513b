#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include <amalgam/core/result.hpp>

#include "fabric/transports/tcp/socket_address.hpp"

namespace amalgam::detail {

/// The addresses of a host, by /etc/hosts, DNS or whatever the machine is set up for.
/// Failure: `unreachable`, with one sentence. Cost: may wait for seconds.
result<std::vector<socket_address>> resolve(const std::string& host, std::uint16_t port);

/// Asks for addresses without making the port wait: a thread of its own waits for the answers,
/// as long as there are any to come.
///
/// Threads: the port's. A question still open when this object ends is dropped, not waited for.
class resolver {
public:
    struct answer {
        std::uint64_t question;
        std::string host;
        std::uint16_t port;
        result<std::vector<socket_address>> addresses;
    };

    /// Failure: throws error{no_memory} when there is no descriptor to be had.
    resolver();
    ~resolver();
    resolver(const resolver&) = delete;
    resolver& operator=(const resolver&) = delete;

    /// Returns a number that its answer will bear.
    /// Failure: throws std::system_error when no thread can be started.
    std::uint64_t ask(std::string host, std::uint16_t port);
    /// Readable while there are answers to take.
    int fd() const noexcept;
    std::list<answer> take();

private:
    struct state;
    std::shared_ptr<state> state_;  // Shared with the thread, which may outlive us.
};

}  // namespace amalgam::detail
