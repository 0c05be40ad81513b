#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/result.hpp>
#include <amalgam/fabric/port.hpp>
#include <amalgam/rpc/peer.hpp>

#include "rpc/context/engine_context.hpp"
#include "rpc/peers/known_peers.hpp"
#include "rpc/peers/lost_peers.hpp"
#include "rpc/peers/routes.hpp"

namespace amalgam::detail {

/// Finds the peer at an address, and the address of a peer, whether it is present or lost.
///
/// Threads: the engine's stream, except is_own() and lost().given_up().
class peer_addresses {
public:
    /// `own`: what this engine listens at. `ports` are empty once the engine has ended.
    peer_addresses(engine_context& context, known_peers& peers, route_table& routes,
                   const std::vector<std::unique_ptr<port>>& ports,
                   const std::vector<std::string>& own)
        : context_(context), peers_(peers), routes_(routes), ports_(ports), own_(own) {}

    /// The peer at a normalized address, through the first port that speaks this transport and does
    /// not refuse it.
    result<peer> find(const std::string& address, std::string_view transport);
    result<peer> find(const std::string& address);
    /// Starts connecting to an address through one port. A new peer is marked untold.
    result<peer> dial(std::uint16_t port, const std::string& address);
    bool is_own(const std::string& address) const noexcept;

    /// Its address, kept after its loss: see lost_peers. Empty if no longer known.
    std::string address_of(const peer& who);
    /// The same as part of a sentence.
    std::string text_of(const peer& who);
    /// The address it was looked up by, kept after its loss. Empty for one that connected to us.
    std::string looked_up_at(const peer& who);

    /// Status of calls to a lost peer: unreachable if it was never connected.
    status why_lost(const peer& who) const noexcept;
    /// For whoever wants something of it.
    static const char* sentence_of_lost(errc why) noexcept {
        return why == errc::denied
                   ? "the connection was refused for want of trust; the logs of both ends say why"
                   : "the peer is gone; look up its address again";
    }
    /// The cause, as part of a sentence; empty if unknown.
    std::string_view reason(const peer& who, status why) const noexcept;
    /// Remembers the address of a peer that is being lost.
    void keep_lost(const peer_state& gone, status why) noexcept;
    lost_peers& lost() noexcept { return lost_; }
    const lost_peers& lost() const noexcept { return lost_; }

private:
    bool was_unanswered(const peer& who) const noexcept;

    engine_context& context_;
    known_peers& peers_;
    route_table& routes_;
    const std::vector<std::unique_ptr<port>>& ports_;
    const std::vector<std::string>& own_;
    lost_peers lost_;
};

}  // namespace amalgam::detail
