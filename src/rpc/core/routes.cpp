#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/random.hpp>
#include <amalgam/core/uri.hpp>

#include "rpc/core/core.hpp"

// Peers by their addresses, and by several at once; route_search.cpp tries those out.

namespace amalgam::detail {

result<peer> engine_core::lookup(std::string_view address) {
    const result<uri> parsed = parse_uri(address);
    if (!parsed) return parsed.why();
    const std::string canonical = to_string(*parsed);
    std::optional<result<peer>> found;
    on_stream([&] {
        found.emplace(peer_addresses_.find(canonical, transport_of(*parsed)));
        // The user now has this name. Names of other callers stay untold.
        if (*found && !found->value().is_self()) peers_.find(**found)->untold = false;
    });
    return std::move(*found);
}

void engine_core::add_route(const std::shared_ptr<known_engine>& engine, peer_state& way,
                            const introduction& said, std::size_t order) {
    if (ports_.empty()) throw error(errc::closed, why_closed());
    route how;
    how.far_port = said.port;
    how.number = said.number;
    how.rank = rank_of(&can(way.name.port()), order);
    routes_.add(engine, way, how);
    knows_routes_.store(true, std::memory_order_relaxed);
}

introduction engine_core::introduced(const peer& from, const introduction& asked) {
    introduction mine{
        .home = home(), .port = static_cast<std::uint16_t>(from.port()), .number = asked.number};
    peer_state* const way = peers_.find(from);
    if (way == nullptr || from.is_self()) return mine;
    std::shared_ptr<known_engine> engine;
    if (asked.ticket != 0) {
        // A ticket is only sent over paths known to lead to this engine.
        engine = routes_.by_ticket(asked.ticket);
        if (engine == nullptr || engine->home != asked.home) {
            throw error(errc::denied, "invalid ticket for this engine's number");
        }
    } else {
        engine = routes_.engine_of(from);
        if (engine != nullptr && engine->home != asked.home) {
            throw error(errc::denied, "this path leads to another engine");
        }
    }
    if (engine == nullptr) {
        engine = std::make_shared<known_engine>();
        engine->home = asked.home;
        engine->ticket = random_nonzero_u64();
        engine->proof = random_nonzero_u64();
    }
    add_route(engine, *way, asked, asked.number);
    routes_.give_ticket(engine);
    mine.ticket = engine->ticket;
    mine.proof = engine->proof;
    return mine;
}

void engine_core::part(const peer& from, std::uint32_t number) {
    const std::shared_ptr<known_engine> engine = routes_.engine_of(from);
    if (engine == nullptr) return;
    for (const route& each : engine->routes) {
        const peer_state* const way = each.number == number ? peers_.find(each.way) : nullptr;
        if (way != nullptr && way->name != from) return outbox_.cut_off(way->name);
    }
}

void engine_core::on_release(const peer_state& from, const_bytes ids) noexcept {
    loans_.on_release(from.name, ids);
    const auto engine = from.introduced ? routes_.engine_of(from.name) : nullptr;
    if (engine == nullptr) return look_whether_quiet();
    // Buffers borrowed over one path may be released over another.
    for (const route& each : engine->routes)
        loans_.on_release(each.way, ids);
    for (const known_engine::name& each : engine->lost)
        loans_.on_release(each.who, ids);
    look_whether_quiet();
}

std::vector<peer_way> engine_core::ways(const peer& who) {
    std::vector<peer_way> all;
    const auto add = [&](peer_state& way) {
        way.untold = false;  // The user has this name now.
        all.push_back({way.name, peer_addresses_.address_of(way.name), can(way.name.port())});
    };
    if (who.is_self()) return {{who, peer_addresses_.address_of(who), {}}};
    peer_state* const now = ports_.empty() ? nullptr : routes_.way_to(who);
    if (now == nullptr) return all;
    const auto engine = routes_.engine_of(now->name);
    if (engine == nullptr) {
        add(*now);
        return all;
    }
    for (const route& each : engine->routes)
        if (peer_state* const way = peers_.find(each.way)) add(*way);
    return all;
}

std::string engine_core::explain(const peer& who) {
    if (who.is_self()) return "this engine itself: messages to it use no transport";
    const peer_state* const now = ports_.empty() ? nullptr : routes_.way_to(who);
    if (now == nullptr) return "no path to the peer is left: look up its addresses again";
    const std::string used = peer_addresses_.text_of(now->name);
    const auto engine = routes_.engine_of(now->name);
    const route* const how = engine == nullptr ? nullptr : engine->find(now->name);
    if (how == nullptr || engine->tried.empty()) {
        const capabilities& speaks = can(now->name.port());
        return fmt::format("{} is used ({}): {}", used, describe_rank(rank_of(&speaks, 0)),
                           now->address.empty() ? "the peer connected from there"
                                                : "the only address that was looked up");
    }
    std::string others;
    for (const known_engine::tried_address& each : engine->tried) {
        if (each.way == now->name) continue;
        const route* const other = each.way ? engine->find(each.way) : nullptr;
        const std::string verdict = other != nullptr ? "also works, " + describe_rank(other->rank)
                                    : each.way       ? "lost"
                                                     : each.why_not;
        fmt::format_to(std::back_inserter(others), "{}{} ({})", others.empty() ? "; " : ", ",
                       each.address, verdict);
    }
    return fmt::format("{} is used ({}): the best of {} that {}{}", used, describe_rank(how->rank),
                       engine->routes.size(), engine->routes.size() == 1 ? "works" : "work",
                       others);
}

}  // namespace amalgam::detail
