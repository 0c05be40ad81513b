#include "rpc/peers/peer_addresses.hpp"

#include <algorithm>
#include <new>
#include <optional>

#include <fmt/format.h>

#include <amalgam/core/uri.hpp>

#include "rpc/peers/self_link.hpp"

namespace amalgam::detail {

result<peer> peer_addresses::find(const std::string& address, std::string_view transport) {
    if (ports_.empty()) return {errc::closed, context_.why_closed()};
    if (is_own(address)) return peers_.meet(peer::self_port, self_link::id).name;
    std::string have;
    std::optional<failure> refused;
    for (std::size_t i = 0; i < ports_.size(); ++i) {
        const std::string_view speaks = ports_[i]->can().transport;
        have += have.empty() ? "" : ", ";
        have += speaks;
        if (speaks != transport) continue;
        result<peer> found = dial(static_cast<std::uint16_t>(i), address);
        if (found) return found;
        // Another port may be of its family, or have the credentials that it names.
        if (!refused) refused = found.why();
    }
    if (refused) return *refused;
    return {errc::unsupported,
            fmt::format("no port of this engine speaks {0}, only {1}: give the engine another URI; "
                        "example: engine{{{{\"{2}://\", \"{0}://\"}}}}",
                        transport, have, ports_.front()->can().transport)};
}

result<peer> peer_addresses::find(const std::string& address) {
    const result<uri> parsed = parse_uri(address);
    if (!parsed) return parsed.why();
    return find(address, transport_of(*parsed));
}

result<peer> peer_addresses::dial(std::uint16_t port, const std::string& address) {
    if (ports_.empty()) return {errc::closed, context_.why_closed()};
    result<peer_id> id = ports_[port]->lookup(address);
    if (!id) return id.why();
    const bool is_new = peers_.find(port, *id) == nullptr;
    peer_state& state = peers_.meet(port, *id);
    if (is_new) {
        state.untold = true;
        lost_.forget(state.name);
    }
    if (state.address.empty()) state.address = address;
    return state.name;
}

bool peer_addresses::is_own(const std::string& address) const noexcept {
    return std::find(own_.begin(), own_.end(), address) != own_.end();
}

std::string peer_addresses::address_of(const peer& who) {
    if (who.is_self()) return own_.empty() ? std::string() : own_.front();
    if (const peer_state* const known = routes_.way_to(who)) {
        if (!known->address.empty()) return known->address;
        if (ports_.empty()) return {};
        return ports_[known->name.port()]->peer_address(known->name.id());
    }
    const lost_peer* const lost = lost_.find(who);
    return lost != nullptr ? lost->address : std::string();
}

std::string peer_addresses::text_of(const peer& who) {
    if (!who) return "an empty peer";
    if (!context_.owns(who)) return "a peer of another engine";
    std::string address = address_of(who);
    if (!address.empty()) return address;
    return who.is_self() ? "this engine itself" : "a peer that is gone";
}

std::string peer_addresses::looked_up_at(const peer& who) {
    if (const peer_state* const known = routes_.way_to(who)) return known->address;
    const lost_peer* const lost = lost_.find(who);
    return lost != nullptr && lost->looked_up ? lost->address : std::string();
}

status peer_addresses::why_lost(const peer& who) const noexcept {
    const lost_peer* const lost = lost_.find(who);
    const bool was_never_there =
        lost != nullptr && (lost->why == errc::unreachable || lost->why == errc::denied);
    return was_never_there ? lost->why : status{errc::disconnected};
}

bool peer_addresses::was_unanswered(const peer& who) const noexcept {
    if (const peer_state* const known = peers_.find(who)) return known->unanswered;
    const lost_peer* const lost = lost_.find(who);
    return lost != nullptr && lost->unanswered;
}

std::string_view peer_addresses::reason(const peer& who, status why) const noexcept {
    if (why == errc::disconnected && was_unanswered(who)) {
        return "it did not answer pings within keepalive.timeout: it hangs, is stopped, or cannot "
               "be reached";
    }
    if (why != errc::unreachable || who.port() >= ports_.size()) return {};
    return reason_of(why, ports_[who.port()]->can().transport);
}

void peer_addresses::keep_lost(const peer_state& gone, status why) noexcept {
    const std::uint32_t through = gone.name.port();
    if (through >= ports_.size()) return;
    try {
        const bool looked_up = !gone.address.empty();
        lost_.keep(gone.name,
                   {looked_up ? gone.address : ports_[through]->peer_address(gone.name.id()),
                    looked_up, why, gone.unanswered});
    } catch (const std::bad_alloc&) {
        // Messages about it omit the address.
    }
}

}  // namespace amalgam::detail
