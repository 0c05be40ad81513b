#pragma once

#include <functional>
#include <optional>
#include <string>

#include "conformance/child_process.hpp"

namespace amalgam::processes {

/// A host on a test network: a child process in an unnamed network namespace, so that nothing of it
/// stays behind even if the test is killed. It runs one port, on command.
///
/// Threads: one at a time.
/// Failure: functions throw std::runtime_error with the host's message.
class network_host {
public:
    network_host();

    /// Why namespaces, virtual cables and (with `nat`) address translation do not work here; empty
    /// if they do, by trying.
    static std::optional<std::string> why_not(bool nat);

    /// A cable named `here` at this end and `there` at the other, both up. Addresses include their
    /// prefix: "10.1.0.1/24"; empty means link-local only.
    void plug(const std::string& here, const std::string& address, network_host& other,
              const std::string& there, const std::string& other_address);
    /// Runs a command in this host, "ip route add …"; returns its output.
    std::string run(const std::string& command);

    /// For running programs in this host: nsenter enters its network by this.
    pid_t pid() const noexcept { return process_.pid(); }
    /// Another process of this host.
    conformance::child_process start(
        const std::function<void(conformance::channel& parent)>& body) const;

    /// Opens the port; returns its address.
    std::string open(const std::string& uri, int silence_limit_ms = 5000);
    /// The error text of a failed open.
    std::string complaint(const std::string& uri);
    std::string explain();
    /// Looks up a peer and sends it `text`; returns how that ended: "ok", "unreachable" …
    std::string send(const std::string& address, const std::string& text);
    /// The same to the sender of the last message, over the connection it arrived on.
    std::string reply(const std::string& text);
    /// Waits for a message; returns "TEXT from ADDRESS".
    std::string receive();
    /// Posts a receive for a message of the last peer, which the test never sends.
    void expect();
    /// Posts a send to the last peer without waiting.
    void post(const std::string& text);
    /// Waits for the end of the last expect() or post().
    std::string ended();
    /// Number of peers reported lost so far.
    int lost();

private:
    std::string ask(const std::string& order);

    conformance::child_process process_;
};

/// Two subnets with a router in between, which forwards. The server has no way to the caller's.
struct two_subnets {
    two_subnets();

    network_host caller;  ///< up0, 10.1.0.2; the router's end is home0, 10.1.0.1.
    network_host router;
    network_host server;  ///< net0, 10.2.0.2; the router's end is out0, 10.2.0.1.
};

}  // namespace amalgam::processes
