#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <amalgam/fabric/transport.hpp>

#include "fabric/port_testing.hpp"

namespace amalgam::detail {

using testing_support::recorded;

/// For tests of this transport alone: a port that notes what comes.
class shm_test_port final : public message_sink {
public:
    explicit shm_test_port(const std::string& where, const port_options& options = {});
    ~shm_test_port();

    port& end() noexcept { return *end_; }
    std::size_t progress() noexcept { return end_->progress(); }
    peer_id reach(shm_test_port& other) { return end_->lookup(other.end().address()).value(); }
    /// Posts an unexpected message until it is taken, and forgets it: `bytes` stay lent.
    void send(peer_id to, std::uint64_t tag, const_bytes bytes);

    std::vector<std::uint64_t> tags;  ///< Of what came.
    std::vector<std::byte> last;      ///< The latest message.
    peer_id from;                     ///< Who sent it.
    std::vector<status> losses;
    bool echo = false;  ///< Sends what comes back, short messages only.

private:
    void on_message(message& arrived) noexcept override;
    void on_peer_down(peer_id, status why) noexcept override { losses.push_back(why); }

    /// A send and what it lends: the list of segments must live as long as their bytes.
    struct lent_send;
    std::vector<std::unique_ptr<lent_send>> sends_;
    std::unique_ptr<port> end_;
};

/// Moves all ports on until `reached`; the test's watchdog is the bound.
void move_until(std::initializer_list<shm_test_port*> ports, const std::function<bool()>& reached);
/// As move_until(), asleep whenever the port lets us; `once_armed` runs before the first sleep.
void sleep_until(
    shm_test_port& port, const std::function<bool()>& reached,
    const std::function<void()>& once_armed = [] {});

class shm_raw_peer;
/// Both sides of a greeting wait for each other.
void greet(shm_raw_peer& peer, shm_test_port& port);

}  // namespace amalgam::detail
