#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include <amalgam/core/result.hpp>

#include "fabric/sockets/socket_address.hpp"

namespace amalgam::detail {

/// The addresses of a host, from /etc/hosts, DNS or whatever the machine is configured for.
/// Failure: `unreachable`, with one sentence. Cost: may block for seconds.
result<std::vector<socket_address>> resolve(const std::string& host, std::uint16_t port);

/// Resolves host names without blocking the port: its own thread waits for the answers while any
/// are pending.
///
/// Threads: the port's thread. Pending questions are dropped on destruction, not waited for.
class resolver {
public:
    struct answer {
        std::uint64_t question;
        std::string host;
        std::uint16_t port;
        result<std::vector<socket_address>> addresses;
    };

    /// Failure: throws error{no_memory} if no descriptor is available.
    resolver();
    ~resolver();
    resolver(const resolver&) = delete;
    resolver& operator=(const resolver&) = delete;

    /// Returns a number that identifies the answer.
    /// Failure: throws error{no_memory} if no thread can be started.
    std::uint64_t ask(std::string host, std::uint16_t port);
    /// Readable while answers are available.
    int fd() const noexcept;
    std::list<answer> take();

private:
    struct state;
    std::shared_ptr<state> state_;  // Shared with the thread, which may outlive us.
};

}  // namespace amalgam::detail
