#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include <amalgam/rpc/engine.hpp>

#include "directory/membership/joining.hpp"
#include "directory/membership/procedures.hpp"
#include "directory/membership/runtime.hpp"
#include "directory/membership/view.hpp"
#include "directory/protocol/broadcast_packet.hpp"

namespace amalgam::detail {

/// Meets other servers by broadcast: announces this one, and invites strangers that it hears.
///
/// Threads: any. Its lock guards the strangers.
class discovery {
public:
    discovery(ring_runtime& runtime, membership_view& view, joining& joins);
    void start();
    /// Precondition: the options have a medium.
    void start_announcing();

    /// Another server's announcement. Most are old news, and start no ULT.
    void hear(broadcast_packet&& stranger);

private:
    void announce();
    bool is_to_be_met(const broadcast_packet& stranger);
    /// Precondition: is_to_be_met() returned true.
    void meet(const broadcast_packet& stranger);
    void met(std::vector<std::string> addresses);

    ring_runtime& runtime_;
    membership_view& view_;
    joining& joining_;
    const procedure<in_ring::meet> meet_;

    std::mutex lock_;       // Never held across a wait. Nothing else is locked meanwhile.
    unsigned meeting_ = 0;  // Number of strangers being met.
    std::unordered_map<std::uint64_t, unsigned> strangers_;  // How often each was heard.
};

}  // namespace amalgam::detail
