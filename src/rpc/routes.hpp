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

#include "rpc/known_peers.hpp"

namespace amalgam::detail {

/// What two engines tell each other over every way between them, so that both know which ways
/// lead to one engine. See docs/wire/rpc.md.
struct introduction {
    static constexpr std::string_view procedure = "amalgam.introduce";
    static constexpr std::string_view amalgam_type_name = "introduction";

    std::uint64_t home = 0;    ///< Number of the speaker's run.
    std::uint16_t port = 0;    ///< Of the speaker's, by which this way goes.
    std::uint32_t number = 0;  ///< What both call this way; the one who asks chooses it.
    /// Asked with: what was answered over an earlier way; 0: this is the first. Answered with: what
    /// to ask with over the next way.
    std::uint64_t ticket = 0;
    std::uint64_t proof = 0;  ///< Answered with: the same over all ways of one engine.

    template <typename Archive>
    void serialize(Archive& a) {
        a(home, port, number, ticket, proof);
    }
};

/// One way to an engine that may be known by several.
struct route {
    peer way;
    std::uint16_t far_port = 0;  ///< Of the engine there.
    std::uint32_t number = 0;
    std::uint32_t rank = 0;  ///< See rank_of().
};

/// An engine and the ways to it, each of which has shown that it leads there.
struct known_engine {
    struct name {
        peer who;
        bool untold = false;
    };
    struct tried_address {
        std::string address;
        peer way;             ///< It worked.
        std::string why_not;  ///< It did not.
    };

    std::uint64_t home = 0;
    std::uint64_t ticket = 0;
    std::uint64_t proof = 0;
    std::vector<route> routes;  ///< That stand; best first.
    std::vector<name> lost;     ///< That stood.
    std::vector<tried_address> tried;

    const route* find(const peer& way) const noexcept;
};

/// Lower is better: what is near before what is far (the engine itself, this process, this host,
/// other hosts), one-sided transfers by copy or hardware before those by messages, then `order`.
std::uint32_t rank_of(const capabilities* port, std::size_t order) noexcept;
/// "on this host, from memory to memory"
std::string describe_rank(std::uint32_t rank);

/// Which ways lead to one engine, for ways that were introduced.
///
/// When a way is lost its name goes on to mean the engine, as long as another way leads there.
/// Threads: the engine's stream.
class route_table {
public:
    explicit route_table(known_peers& peers) noexcept : peers_(peers) {}

    /// The way becomes one of `engine`'s.
    void add(const std::shared_ptr<known_engine>& engine, peer_state& way, route how);
    /// The engine that the way leads to, as far as it was introduced; else null.
    std::shared_ptr<known_engine> engine_of(const peer& way) const;
    /// An engine shows this ticket over its next way.
    void give_ticket(const std::shared_ptr<known_engine>& engine) {
        by_ticket_[engine->ticket] = engine;
    }
    /// Whom that ticket was given; null: none that we know.
    std::shared_ptr<known_engine> by_ticket(std::uint64_t ticket) const;

    /// The way is gone. Its engine, which has no routes then if that is gone, too; or null: it was
    /// not introduced.
    std::shared_ptr<known_engine> lose(peer_state& way) noexcept;
    /// More names of lost ways are not kept for an engine that is still reached: ways that come and
    /// go must not add up.
    static constexpr std::size_t max_lost = 64;
    /// The oldest name past those, which means nobody from here on; nothing: there is none.
    std::optional<known_engine::name> drop_oldest(known_engine& engine) noexcept;
    /// Another way to the engine that `lost` led to; null: none.
    peer_state* instead_of(const peer& lost) noexcept;

private:
    void leave(known_engine& engine, const peer& way) noexcept;

    known_peers& peers_;
    std::unordered_map<peer, std::shared_ptr<known_engine>> by_name_;  // Lost ones, too.
    std::unordered_map<std::uint64_t, std::shared_ptr<known_engine>> by_ticket_;
};

}  // namespace amalgam::detail
