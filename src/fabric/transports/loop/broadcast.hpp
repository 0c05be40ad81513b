#pragma once

#include <memory>
#include <utility>

#include <amalgam/fabric/broadcast_medium.hpp>

#include "fabric/broadcast/broadcast_receiver.hpp"
#include "fabric/transports/loop/virtual_hub.hpp"

namespace amalgam::detail {

/// A virtual host's access to the broadcast medium of its network.
///
/// Threads: the network's thread.
class loop_broadcast final : public broadcast_medium {
public:
    loop_broadcast(std::weak_ptr<virtual_hub> hub, loop_station& at, std::size_t max_bytes)
        : hub_(std::move(hub)), at_(at), max_bytes_(max_bytes) {}

    void listen(receiver function) override { function_ = std::move(function); }
    bool send(const_bytes packet) noexcept override;
    std::size_t max_bytes() const noexcept override { return max_bytes_; }

    /// No packets leave or reach this host. The network itself still exists.
    bool is_off() const noexcept { return at_.cut || at_.port == nullptr || at_.port->is_dead(); }
    loop_station& where() const noexcept { return at_; }
    void take(const_bytes packet) noexcept {
        if (!is_off()) give_packet(function_, packet);
    }

private:
    const std::weak_ptr<virtual_hub> hub_;
    loop_station& at_;
    const std::size_t max_bytes_;
    receiver function_;
};

}  // namespace amalgam::detail
