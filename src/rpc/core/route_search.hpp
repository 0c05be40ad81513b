#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <amalgam/rpc/detail/call.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/future.hpp>

#include "rpc/peers/routes.hpp"

namespace amalgam::detail {

/// Finds out which engine answers at each of several addresses, and keeps the paths to the intended
/// one.
///
/// That is the engine at the first global address of the list, or at the next if that one does not
/// answer soon; if the list has no global address, at its first address. An address where that
/// engine cannot prove its identity is not used. Each address is probed by its own ULT; late ones
/// continue after the result.
/// Owner:   the ULTs, jointly.
/// Threads: the engine's stream, except the constructor.
class route_search : public std::enable_shared_from_this<route_search> {
public:
    /// `addresses`: normalized as in engine::lookup(), each with its transport.
    struct asked_address {
        std::string text;
        std::string transport;
    };
    route_search(engine_core& core, const std::vector<asked_address>& addresses);

    future<peer> start();

private:
    enum class state : std::uint8_t { asking, answered, works, refused };
    struct candidate {
        std::string address;
        std::vector<std::uint16_t> ports;  ///< Ports that speak its transport.
        std::uint32_t rank = 0;
        std::size_t order = 0;
        bool says_who = false;  ///< Global: means the same on every host.
        state is = state::asking;
        peer way;
        introduction answer;
        std::string why_not;
        bool denied = false;  ///< By its allow list.
    };

    void run() noexcept;
    void look();
    void find_who(bool late);
    std::vector<candidate*> in_order();
    void ask(candidate& one) noexcept;
    template <typename Step>
    void step(candidate& one, Step what) noexcept;
    bool reach(candidate& one);
    bool reach_by(candidate& one, std::uint16_t port);
    void settle(candidate& one);
    void join(candidate& one);
    void refuse(candidate& one, std::string why);
    void note();
    const candidate* best() const noexcept;
    bool decided() const noexcept;
    bool knows_who() const noexcept { return engine_ != nullptr || is_self_; }

    engine_core& core_;
    core_reference alive_;
    const remote_procedure& introduce_;
    std::vector<candidate> candidates_;  // Best first; never move.
    std::shared_ptr<known_engine> engine_;
    bool is_self_ = false;
    event who_is_known_;  // Or will remain unknown.
    event changed_;
    promise<peer> found_;
};

}  // namespace amalgam::detail
