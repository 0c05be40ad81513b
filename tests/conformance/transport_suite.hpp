#pragma once

#include <chrono>
#include <cstdint>
#include <cstdlib>
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

/// Requirements of every transport. A transport's test file instantiates it:
///
///     INSTANTIATE_TEST_SUITE_P(tcp, transport_suite, testing::Values("tcp://127.0.0.1:0"));
///
/// The URI opens a port that listens at its own address; "{}" in it is replaced by a number that is
/// unique in this run, for transports that need a name ("loop://test-{}"). A test is skipped only
/// for what the port's capabilities exclude.
namespace amalgam::conformance {

/// Properties of a transport beyond its URI; all optional unless noted.
struct transport_traits {
    /// Source of the ports; out-of-tree transports add themselves here.
    std::function<transport_registry()> registry = &transport_registry::installed;
    /// Connects to `address` without one of our ports, misbehaves (`seed` chooses how), and returns
    /// once the far side has ended the connection. Runs in its own process. Required of transports
    /// between processes whose bytes others can write.
    std::function<void(const std::string& address, std::uint64_t seed)> send_garbage{};
    /// Advances virtual time; called when all ports are idle.
    std::function<void()> pass_time{};
    /// Known without asking a port: ports reach only this process.
    bool stays_within_process = false;
};

/// Sets the traits of the transport whose URIs begin with `scheme`. Called before main, by the
/// initializer of a constant in the transport's test file; returns true.
bool describe_transport(std::string scheme, transport_traits traits);

/// The suite does less over that URI, as in slow builds, because it is run in full over another of
/// its kind: of another address family, or with other options. Called as describe_transport().
bool run_briefly(std::string uri);
/// Whether the running test does less.
bool is_brief();

/// Time limit for expected events, long enough that a correct port never reaches it:
/// AMALGAM_PATIENCE_SECONDS, or 100 s.
std::chrono::milliseconds patience();

/// Sizes around every limit a protocol might have: inline slots, words, cache lines, pages, powers
/// of two, up to 64 MiB.
std::vector<std::size_t> message_sizes();

/// The URI with a unique number in place of "{}".
std::string filled_in(std::string where);

/// A connection, and how each end names the other.
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
    /// At its own URI. Failure: throws the transport's error.
    node& open_at(const std::string& where, const port_options& options = {});
    /// URI of a port that calls without listening, if the transport has such ports.
    std::optional<std::string> caller_uri();
    /// The address of a port that was opened and destroyed: nobody is there.
    std::string address_of_nobody();
    const transport_traits& traits() const;
    transport_registry& registry();

    /// On return, both ends know each other.
    connection connect(node& a, node& b);
    connection connected_pair() { return connect(open(), open()); }

    // ---- progress

    /// One round of progress over all open ports; sleeps briefly on their handles when idle.
    /// Returns the sum of the progress() results.
    std::size_t move();
    /// Makes progress until `reached`. Aborts after patience().
    void until(std::string_view what, const std::function<bool()>& reached);
    /// Posts until accepted.
    operation& start(node& at, request what);
    /// Posts until accepted, and makes progress until it has ended.
    operation& complete(node& at, request what);
    void finish(const operation& op);
    void finish(const std::vector<operation*>& ops);
    /// Makes progress until everything sent so far by `from` has arrived.
    void flush(const connection& over);
    /// Removes and returns the next message recorded at `at`.
    arrival next_arrival(node& at);
    std::string hear(child_process& child) { return hear(child.line()); }
    std::string hear(channel& line);

    // ---- memory that outlives the ports

    mutable_bytes zeroed(std::size_t bytes);
    mutable_bytes patterned(std::size_t bytes, std::uint64_t seed);

    // ---- processes

    /// Capabilities of this transport's ports. Determined in a child, so that this process can
    /// still fork.
    bool can(bool capabilities::*what);
    bool between_processes() {
        return !traits().stays_within_process && can(&capabilities::between_processes);
    }
    /// Forks a child with this fixture. Precondition: no port is open here yet.
    child_process& spawn(const std::function<void(channel& parent)>& body);

protected:
    void TearDown() override;

private:
    struct freed {
        void operator()(std::byte* memory) const noexcept { std::free(memory); }
    };

    void sleep_a_moment();
    arrival take_marker(node& at, std::uint64_t tag);
    [[noreturn]] void give_up(std::string_view what);

    std::optional<transport_registry> registry_;
    std::deque<std::unique_ptr<std::byte, freed>> memory_;  ///< By calloc().
    std::deque<std::unique_ptr<node>> nodes_;
    std::deque<child_process> children_;
    int heard_fd_ = -1;
};

}  // namespace amalgam::conformance

using amalgam::conformance::transport_suite;
