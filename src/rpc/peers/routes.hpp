#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <amalgam/fabric/port.hpp>
#include <amalgam/rpc/peer.hpp>

#include "rpc/peers/known_peers.hpp"

namespace amalgam::detail {

/// Exchanged by two engines over every path between them, so that both know which paths lead to one
/// engine. See docs/wire/rpc.md.
struct introduction {
    static constexpr std::string_view procedure = "amalgam.introduce";
    static constexpr std::string_view amalgam_type_name = "introduction";

    std::uint64_t home = 0;    ///< Number of the speaker's run.
    std::uint16_t port = 0;    ///< The speaker's port of this path.
    std::uint32_t number = 0;  ///< Name of this path for both; chosen by the asking side.
    /// In a request: the ticket answered over an earlier path; 0: this is the first. In an answer:
    /// the ticket to send over the next path.
    std::uint64_t ticket = 0;
    std::uint64_t proof = 0;  ///< In an answer: the same over all paths of one engine.

    template <typename Archive>
    void serialize(Archive& a) {
        a(home, port, number, ticket, proof);
    }
};

/// One path to an engine that may have several.
struct route {
    peer way;
    std::uint16_t far_port = 0;  ///< Port of the remote engine.
    std::uint32_t number = 0;
    std::uint32_t rank = 0;  ///< See rank_of().
};

/// An engine and the paths to it, each of which has proved that it leads there.
struct known_engine {
    struct name {
        peer who;
        bool untold = false;
    };
    struct tried_address {
        std::string address;
        peer way;             ///< If it worked.
        std::string why_not;  ///< If it did not.
    };

    std::uint64_t home = 0;
    std::uint64_t ticket = 0;
    std::uint64_t proof = 0;
    std::vector<route> routes;  ///< Live paths, best first.
    std::vector<name> lost;     ///< Lost paths.
    std::vector<tried_address> tried;

    const route* find(const peer& way) const noexcept;
};

/// Lower is better: first by distance (this engine, process, host, others), then one-sided
/// transfers by copy or hardware before those by messages, then by `order`.
std::uint32_t rank_of(const capabilities* port, std::size_t order) noexcept;
/// "on this host, from memory to memory"
std::string describe_rank(std::uint32_t rank);

/// Which introduced paths lead to which engine.
///
/// The name of a lost path keeps meaning the engine while another path leads there.
/// Threads: the engine's stream.
class route_table {
public:
    explicit route_table(known_peers& peers) noexcept : peers_(peers) {}

    /// Adds the path to those of `engine`.
    void add(const std::shared_ptr<known_engine>& engine, peer_state& way, route how);
    /// The engine at the end of that path, if introduced; else null.
    std::shared_ptr<known_engine> engine_of(const peer& way) const;
    /// The engine will send this ticket over its next path.
    void give_ticket(const std::shared_ptr<known_engine>& engine) {
        by_ticket_[engine->ticket] = engine;
    }
    /// The engine that got that ticket; null if unknown.
    std::shared_ptr<known_engine> by_ticket(std::uint64_t ticket) const;

    /// Removes a lost path. Returns its engine, without routes if that is lost, too; null: not
    /// introduced.
    std::shared_ptr<known_engine> lose(peer_state& way) noexcept;
    /// Removes the oldest name past the limit, which no longer means anybody; empty if there is
    /// none.
    std::optional<known_engine::name> drop_oldest(known_engine& engine) noexcept;
    /// Another path to the engine of `lost`; null if none.
    peer_state* instead_of(const peer& lost) noexcept;
    /// State of the peer, or of another path to the same engine; null: gone.
    peer_state* way_to(const peer& to) noexcept {
        peer_state* const there = peers_.find(to);
        return there != nullptr ? there : instead_of(to);
    }

private:
    void leave(known_engine& engine, const peer& way) noexcept;

    known_peers& peers_;
    std::unordered_map<peer, std::shared_ptr<known_engine>> by_name_;  // Includes lost ones.
    std::unordered_map<std::uint64_t, std::shared_ptr<known_engine>> by_ticket_;
};

route_table& routes_of(engine_core& core) noexcept;

}  // namespace amalgam::detail
