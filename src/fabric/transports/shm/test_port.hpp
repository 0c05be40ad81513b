#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <amalgam/fabric/transport.hpp>

#include "fabric/port/port_testing.hpp"

namespace amalgam::detail {

using testing_support::recorded;

/// For tests of this transport alone: a port that records what arrives.
class shm_test_port final : public message_sink {
public:
    explicit shm_test_port(const std::string& where, const port_options& options = {});
    explicit shm_test_port(std::unique_ptr<port> opened);
    ~shm_test_port();

    port& end() noexcept { return *end_; }
    std::size_t progress() noexcept { return end_->progress(); }
    peer_id reach(shm_test_port& other) { return end_->lookup(other.end().address()).value(); }
    /// Posts an unexpected message until it is taken, and forgets it: `bytes` stay borrowed.
    void send(peer_id to, std::uint64_t tag, const_bytes bytes);

    std::vector<std::uint64_t> tags;  ///< Of arrived messages.
    std::vector<std::byte> last;      ///< The latest message.
    peer_id from;                     ///< Its sender.
    std::vector<status> losses;
    bool echo = false;  ///< Returns what arrives, and keeps a copy.

private:
    void on_message(message& arrived) noexcept override;
    void on_peer_down(peer_id, status why) noexcept override { losses.push_back(why); }

    /// A send and what it borrows: the list of segments must live as long as their bytes.
    struct lent_send;
    std::vector<std::unique_ptr<lent_send>> sends_;
    std::vector<std::vector<std::byte>> echoed_;
    std::unique_ptr<port> end_;
};

/// Makes progress on all ports until `reached`; bounded by the test's watchdog.
void move_until(std::initializer_list<shm_test_port*> ports, const std::function<bool()>& reached);
/// As move_until(), but sleeps whenever the port allows; `once_armed` runs before the first sleep.
void sleep_until(
    shm_test_port& port, const std::function<bool()>& reached,
    const std::function<void()>& once_armed = [] {});

class shm_raw_peer;
/// Runs a handshake in which both sides wait for each other.
void greet(shm_raw_peer& peer, shm_test_port& port);

}  // namespace amalgam::detail
