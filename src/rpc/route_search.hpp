#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <amalgam/rpc/detail/call.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/future.hpp>

#include "rpc/routes.hpp"

namespace amalgam::detail {

/// Asks behind each of several addresses who is there, and keeps the ways to the one engine meant.
///
/// The first address of the list that means the same on every host says which engine that is, or
/// the next when that does not answer soon; when the list has none, the first of all. An address
/// behind which that engine cannot prove to be is not used. Each address is asked by a ULT of its
/// own; those that are late go on after the answer. Owner:   the ULTs, together. Threads: the
/// engine's stream, but for the constructor.
class route_search : public std::enable_shared_from_this<route_search> {
public:
    /// How long the others may take once one has answered.
    static constexpr std::chrono::milliseconds patience{200};

    /// `addresses`: as engine::lookup() keeps them, each with the transport it names.
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
        std::vector<std::uint16_t> ports;  ///< That speak its transport.
        std::uint32_t rank = 0;
        std::size_t order = 0;
        bool says_who = false;  ///< Means the same on every host.
        state is = state::asking;
        peer way;
        introduction answer;
        std::string why_not;
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
    std::vector<candidate> candidates_;  // Best first; stay where they are.
    std::shared_ptr<known_engine> engine_;
    bool is_self_ = false;
    event who_is_known_;  // Or that nobody will say it.
    event changed_;
    promise<peer> found_;
};

}  // namespace amalgam::detail
