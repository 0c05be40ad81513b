#pragma once

#include <memory>
#include <utility>

#include <amalgam/fabric/broadcast_medium.hpp>

#include "fabric/broadcast_receiver.hpp"
#include "fabric/transports/loop/virtual_hub.hpp"

namespace amalgam::detail {

/// Where a host of a virtual network is on the medium that all of them share.
///
/// Threads: that of the network.
class loop_broadcast final : public broadcast_medium {
public:
    loop_broadcast(std::weak_ptr<virtual_hub> hub, loop_station& at, std::size_t max_bytes)
        : hub_(std::move(hub)), at_(at), max_bytes_(max_bytes) {}

    void listen(receiver function) override { function_ = std::move(function); }
    bool send(const_bytes packet) noexcept override;
    std::size_t max_bytes() const noexcept override { return max_bytes_; }

    /// Nothing gets away from it, or to it. The network is still there.
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
