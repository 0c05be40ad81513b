#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include <amalgam/core/detail/printable.hpp>
#include <amalgam/core/uri.hpp>

#include "rpc/engine/core.hpp"

namespace amalgam::detail {

std::size_t engine_core::max_message_bytes(const peer& there) const noexcept {
    return there.port() < limits_.size() ? limits_[there.port()]
                                         : std::numeric_limits<std::size_t>::max();
}

result<peer> engine_core::lookup(std::string_view address) {
    const result<uri> parsed = parse_uri(address);
    if (!parsed) return parsed.why();
    const std::string canonical = to_string(*parsed);
    std::optional<result<peer>> found;
    on_stream([&] {
        found.emplace(find_route(canonical, parsed->scheme));
        // The user now has this name. Names of other callers stay untold.
        if (*found && !found->value().is_self()) peers_.find(**found)->untold = false;
    });
    return std::move(*found);
}

bool engine_core::is_own(const std::string& address) const noexcept {
    return std::find(addresses_.begin(), addresses_.end(), address) != addresses_.end();
}

result<peer> engine_core::dial(std::uint16_t port, const std::string& address) {
    if (ports_.empty()) return {errc::closed, why_closed()};
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

result<peer> engine_core::find_route(const std::string& address, std::string_view transport) {
    if (ports_.empty()) return {errc::closed, why_closed()};
    if (is_own(address)) return self_;
    std::string have;
    for (std::size_t i = 0; i < ports_.size(); ++i) {
        const std::string_view speaks = ports_[i]->can().transport;
        have += have.empty() ? "" : ", ";
        have += speaks;
        if (speaks != transport) continue;
        return dial(static_cast<std::uint16_t>(i), address);
    }
    return {errc::unsupported,
            fmt::format("no port of this engine speaks {0}, only {1}: give the engine another URI; "
                        "example: engine{{{{\"{1}://\", \"{0}://\"}}}}",
                        transport, have)};
}

result<peer> engine_core::route_to(const std::string& address) {
    const result<uri> parsed = parse_uri(address);
    if (!parsed) return parsed.why();
    return find_route(address, parsed->scheme);
}

std::string engine_core::address_of(const peer& who) {
    if (who.is_self()) return addresses_.empty() ? std::string() : addresses_.front();
    if (const peer_state* const known = way_to(who)) {
        if (!known->address.empty()) return known->address;
        if (ports_.empty()) return {};
        return ports_[known->name.port()]->peer_address(known->name.id());
    }
    const lost_peer* const lost = lost_.find(who);
    return lost != nullptr ? lost->address : std::string();
}

std::string engine_core::text_of(const peer& who) {
    if (!who || who.owner() != this) return "an empty peer";
    std::string address = address_of(who);
    if (!address.empty()) return address;
    return who.is_self() ? "this engine itself" : "a peer that is gone";
}

std::string engine_core::looked_up_at(const peer& who) {
    if (const peer_state* const known = way_to(who)) return known->address;
    const lost_peer* const lost = lost_.find(who);
    return lost != nullptr && lost->looked_up ? lost->address : std::string();
}

status engine_core::why_lost(const peer& who) const noexcept {
    const lost_peer* const lost = lost_.find(who);
    if (lost == nullptr || lost->why != errc::unreachable) return {errc::disconnected};
    return lost->why;
}

std::string_view engine_core::reason(const peer& who, status why) const noexcept {
    if (why != errc::unreachable || who.port() >= ports_.size()) return {};
    return reason_of(why, can(who.port()).transport);
}

const remote_procedure& engine_core::intern(std::string_view name, std::string signature) {
    if (name.empty() || name.size() > max_name_bytes) {
        throw error(
            errc::invalid,
            fmt::format("the procedure name has {} bytes, expected 1 to {}; example: \"sum\"",
                        name.size(), max_name_bytes));
    }
    if (signature.size() > max_signature_bytes) {
        throw error(errc::invalid,
                    fmt::format("the signature of \"{}\" is {} bytes long as text, expected at "
                                "most {}: give its types short names with amalgam_type_name",
                                printable_name(name), signature.size(), max_signature_bytes));
    }
    const std::uint64_t id = procedure_id(name, signature);
    const std::lock_guard one(procedures_lock_);
    const auto at = procedures_by_id_.find(id);
    if (at != procedures_by_id_.end()) {
        if (at->second->name == name && at->second->signature == signature) return *at->second;
        throw error(errc::invalid,
                    fmt::format("\"{}\" and \"{}\" hash to the same id: rename one of them",
                                printable_name(name), printable_name(at->second->name)));
    }
    remote_procedure& fresh = procedures_.emplace_back();
    fresh.id = id;
    fresh.index = static_cast<std::uint32_t>(procedures_.size() - 1);
    fresh.name = name;
    fresh.library = is_library_procedure(name);
    fresh.wire_text = names_text(name, signature);
    fresh.signature = std::move(signature);
    procedures_by_id_.emplace(id, &fresh);
    return fresh;
}

const remote_procedure* engine_core::procedure_of(std::uint64_t id) {
    const std::lock_guard one(procedures_lock_);
    const auto at = procedures_by_id_.find(id);
    return at == procedures_by_id_.end() ? nullptr : at->second;
}

}  // namespace amalgam::detail
