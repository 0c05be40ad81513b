#pragma once

#include <optional>
#include <string>

#include "conformance/child_process.hpp"

namespace amalgam::processes {

/// A host of a test's own network: a child process in a network namespace that has no name, so
/// that nothing of it stays behind, also when the test is killed. It runs one port, on orders.
///
/// Threads: one at a time.
/// Failure: functions throw std::runtime_error with what the host said.
class network_host {
public:
    network_host();

    /// Why namespaces, virtual cables and (with `nat`) address translation cannot be had here;
    /// none when they can: it was tried.
    static std::optional<std::string> why_not(bool nat);

    /// A cable with `here` at this end and `there` at the other, both up.
    /// Addresses with their prefix: "10.1.0.1/24"; empty for none but link-local ones.
    void plug(const std::string& here, const std::string& address, network_host& other,
              const std::string& there, const std::string& other_address);
    /// Runs a command in this host, "ip route add …"; returns what it printed.
    std::string run(const std::string& command);

    /// For programs that are to run in this host: nsenter enters its network by it.
    pid_t pid() const noexcept { return process_.pid(); }

    /// Opens the port; returns its address.
    std::string open(const std::string& uri, int silence_limit_ms = 5000);
    /// What the refusal to open one says.
    std::string complaint(const std::string& uri);
    std::string explain();
    /// Looks a peer up and sends it `text`; returns how that ended: "ok", "unreachable" …
    std::string send(const std::string& address, const std::string& text);
    /// The same to the sender of the last message, on the connection that it came by.
    std::string reply(const std::string& text);
    /// Waits for a message; returns "TEXT from ADDRESS".
    std::string receive();
    /// Posts a receive for a message of the last peer, which the test never sends.
    void expect();
    /// Posts a send to the last peer and does not wait.
    void post(const std::string& text);
    /// Waits for the end of what expect() or post() posted last.
    std::string ended();
    /// How many peers were lost so far, and are known to be.
    int lost();

private:
    std::string ask(const std::string& order);

    conformance::child_process process_;
};

}  // namespace amalgam::processes
