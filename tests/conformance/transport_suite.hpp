#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/fabric/transport.hpp>

#include "conformance/child_process.hpp"
#include "conformance/node.hpp"
#include "conformance/operation.hpp"
#include "conformance/pattern.hpp"
#include "conformance/slow_build.hpp"

/// What every transport must do, whatever it is made of. A transport's test file names itself:
///
///     INSTANTIATE_TEST_SUITE_P(tcp, transport_suite, testing::Values("tcp://127.0.0.1:0"));
///
/// The URI opens a port that listens at an address of its own; "{}" in it becomes a number
/// that no other port of the run has, for transports that want a name ("loop://test-{}").
/// A test is skipped only for what the port's capabilities say it cannot do.
namespace amalgam::conformance {

/// What the suite must know of a transport beyond its URI; all optional but where noted.
struct transport_traits {
    /// Where ports come from; out-of-tree transports add themselves here.
    std::function<transport_registry()> registry = &transport_registry::installed;
    /// Connects to `address` without a port of ours, does what no honest peer would (`seed`
    /// chooses what) and returns once the far side has ended the connection. Runs in a process
    /// of its own. Required of transports between processes whose bytes others can write.
    std::function<void(const std::string& address, std::uint64_t seed)> send_garbage{};
    /// Moves virtual time on; called when no port has anything to do.
    std::function<void()> pass_time{};
    /// Known without asking a port: ports of the test's process do not leave it.
    bool stays_within_process = false;
};

/// Tells the suite more about the transport whose URIs begin with `scheme`. Called before
/// main, from the initializer of a constant in the transport's test file; returns true.
bool describe_transport(std::string scheme, transport_traits traits);

/// How long the suite waits for what must come before it gives up: so long that a right port
/// never meets it. AMALGAM_PATIENCE_SECONDS, or 100 s.
std::chrono::milliseconds patience();

/// Lengths around every border a protocol might have: inline slots, words, cache lines,
/// pages, powers of two, up to 64 MiB.
std::vector<std::size_t> message_sizes();

/// The URI with a number of its own in the place of "{}".
std::string filled_in(std::string where);

/// A connection, and what each end calls the other.
struct connection {
    node& a;
    node& b;
    peer_id b_at_a;
    peer_id a_at_b;
};

class transport_suite : public testing::TestWithParam<std::string> {
public:
    void SetUp() override;

    // ---- opening

    node& open(const port_options& options = {});
    /// At a URI of its own. Failure: throws what the transport says.
    node& open_at(const std::string& where, const port_options& options = {});
    /// One that calls and does not listen, where the transport has such ports.
    std::optional<std::string> caller_uri();
    /// Opened and shut before: whose address this was, nobody is there.
    std::string address_of_nobody();
    const transport_traits& traits() const;
    transport_registry& registry();

    /// Both ends know each other when it returns.
    connection connect(node& a, node& b);
    connection connected_pair() { return connect(open(), open()); }

    // ---- moving on

    /// One round of progress over all open ports; sleeps a moment on their handles when
    /// nothing moves. Returns what the rounds of progress() returned.
    std::size_t move();
    /// Moves on until `reached`. Gives up (aborts) when patience() is over.
    void until(std::string_view what, const std::function<bool()>& reached);
    /// Posts until it is taken.
    operation& start(node& at, request what);
    /// Posts until it is taken and moves on until it is over.
    operation& complete(node& at, request what);
    void finish(const operation& op);
    void finish(const std::vector<operation*>& ops);
    /// Moves on until all that `from` sent so far has arrived at the other end.
    void flush(const connection& over);
    /// The next message at `at`, taken off its record.
    arrival next_arrival(node& at);
    std::string hear(child_process& child) { return hear(child.line()); }
    std::string hear(channel& line);

    // ---- memory that outlives the ports

    mutable_bytes zeroed(std::size_t bytes);
    mutable_bytes patterned(std::size_t bytes, std::uint64_t seed);

    // ---- processes

    /// What ports of this transport can do. Asked in a child, so that this process stays fit to
    /// fork.
    bool can(bool capabilities::*what);
    bool between_processes() {
        return !traits().stays_within_process && can(&capabilities::between_processes);
    }
    /// Forks a child that has this fixture, too. Precondition: no port is open here yet.
    child_process& spawn(const std::function<void(channel& parent)>& body);

protected:
    void TearDown() override;

private:
    void sleep_a_moment();
    arrival take_marker(node& at, std::uint64_t tag);
    [[noreturn]] void give_up(std::string_view what);

    std::optional<transport_registry> registry_;
    std::deque<std::unique_ptr<std::byte[]>> memory_;
    std::deque<std::unique_ptr<node>> nodes_;
    std::deque<child_process> children_;
    int heard_fd_ = -1;
};

}  // namespace amalgam::conformance

using amalgam::conformance::transport_suite;
