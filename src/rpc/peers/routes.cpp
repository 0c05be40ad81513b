#include "rpc/peers/routes.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "rpc/limits.hpp"

namespace amalgam::detail {

namespace {
constexpr unsigned distance_shift = 24;
constexpr std::uint32_t by_messages = 1u << 23;
constexpr std::uint32_t max_order = by_messages - 1;
}  // namespace

std::uint32_t rank_of(const capabilities* port, std::size_t order) noexcept {
    std::uint32_t distance = 0;
    if (port != nullptr) distance = !port->between_processes ? 1 : !port->between_hosts ? 2 : 3;
    const bool emulated = port != nullptr && port->rma == rma_mode::emulated;
    return distance << distance_shift | (emulated ? by_messages : 0) |
           static_cast<std::uint32_t>(std::min<std::size_t>(order, max_order));
}

std::string describe_rank(std::uint32_t rank) {
    constexpr const char* where[] = {"this engine itself", "in this process", "on this host",
                                     "over the network"};
    std::string text = where[rank >> distance_shift & 3];
    if ((rank & by_messages) == 0) text += ", direct memory access";
    return text;
}

const route* known_engine::find(const peer& way) const noexcept {
    const auto at = std::find_if(routes.begin(), routes.end(),
                                 [&](const route& each) { return each.way == way; });
    return at == routes.end() ? nullptr : &*at;
}

void route_table::add(const std::shared_ptr<known_engine>& engine, peer_state& way, route how) {
    how.way = way.name;
    engine->routes.reserve(engine->routes.size() + 1);
    std::shared_ptr<known_engine>& known = by_name_[how.way];
    const std::shared_ptr<known_engine> before = std::exchange(known, engine);
    if (before != nullptr) leave(*before, how.way);
    if (before != nullptr && before != engine && before->routes.empty()) {
        // It was introduced separately before: takes over its names.
        for (const known_engine::name& each : before->lost) {
            engine->lost.push_back(each);
            by_name_[each.who] = engine;
        }
        by_ticket_.erase(before->ticket);
    }
    way.introduced = true;
    const auto at = std::find_if(engine->routes.begin(), engine->routes.end(),
                                 [&](const route& other) { return other.rank > how.rank; });
    engine->routes.insert(at, how);
    engine->lost.reserve(engine->lost.size() + engine->routes.size());  // For lose().
}

void route_table::leave(known_engine& engine, const peer& way) noexcept {
    std::erase_if(engine.routes, [&](const route& each) { return each.way == way; });
}

std::shared_ptr<known_engine> route_table::engine_of(const peer& way) const {
    const auto at = by_name_.find(way);
    return at == by_name_.end() ? nullptr : at->second;
}

std::shared_ptr<known_engine> route_table::by_ticket(std::uint64_t ticket) const {
    const auto at = by_ticket_.find(ticket);
    return at == by_ticket_.end() ? nullptr : at->second;
}

std::shared_ptr<known_engine> route_table::lose(peer_state& way) noexcept {
    const auto at = by_name_.find(way.name);
    if (at == by_name_.end()) return nullptr;
    std::shared_ptr<known_engine> engine = at->second;
    leave(*engine, way.name);
    engine->lost.push_back({way.name, way.untold});
    if (engine->routes.empty()) {
        for (const known_engine::name& each : engine->lost)
            by_name_.erase(each.who);
        by_ticket_.erase(engine->ticket);
    }
    return engine;
}

std::optional<known_engine::name> route_table::drop_oldest(known_engine& engine) noexcept {
    if (engine.lost.size() <= limits::max_lost_names) return std::nullopt;
    const known_engine::name oldest = engine.lost.front();
    engine.lost.erase(engine.lost.begin());
    by_name_.erase(oldest.who);
    return oldest;
}

peer_state* route_table::instead_of(const peer& lost) noexcept {
    if (by_name_.empty()) return nullptr;
    const auto at = by_name_.find(lost);
    if (at == by_name_.end()) return nullptr;
    for (const route& each : at->second->routes) {
        if (peer_state* const there = peers_.find(each.way)) return there;
    }
    return nullptr;
}

}  // namespace amalgam::detail
