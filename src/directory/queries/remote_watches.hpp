#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include <amalgam/rpc/engine.hpp>

#include "directory/membership/peers.hpp"
#include "directory/membership/procedures.hpp"
#include "directory/membership/view.hpp"
#include "directory/protocol/procedures.hpp"
#include "directory/resources/registry.hpp"

namespace amalgam::detail {

/// The watches of this server's contexts at all other servers. This server is a watcher at
/// each of them and forwards what they report. When a server is lost, so are the resources it
/// reported. A server that is new, or was disconnected, is asked for everything; what it does not
/// report again is gone.
///
/// Owner:   shared with the ULTs that run.
/// Threads: any.
class remote_watches : public std::enable_shared_from_this<remote_watches> {
public:
    /// `tell` forwards a change to the watching context. Reported resources may take `may_hold`
    /// bytes, each counted with 256 bytes of overhead; those of one server half of that. Further
    /// ones are not forwarded. `answer_limit`: for calls to other servers.
    remote_watches(engine& on, std::size_t may_hold, std::chrono::milliseconds answer_limit,
                   std::function<void(watched_change&&)> tell);

    /// What knows and reaches the other servers.
    void start(std::weak_ptr<const membership_view> view, std::weak_ptr<ring_peers> peers) {
        view_ = std::move(view);
        peers_ = std::move(peers);
    }

    void add(resource_id context, std::uint32_t number, const attribute_view& query);
    void remove(resource_id context, std::uint32_t number);
    void remove_all(resource_id context);

    /// These servers are alive. Those that do not know all watches are told, soon.
    void see(const std::vector<std::uint64_t>& servers);
    /// That server is gone.
    void lose(std::uint64_t server);
    /// The connection to that server is lost; it is asked again.
    void lose(const peer& who);
    /// A report from a server, received from that peer. As at_context::change.
    void changed(const peer& by, std::uint64_t server, std::uint32_t watch,
                 resource_change::kind what, const found_values& which);

private:
    struct told {
        found_values what;
        bool in_doubt = false;  // Not reported since the server was asked for everything again.
    };
    struct watched {
        resource_id context;
        std::uint32_t number;  // Chosen by the context.
        attribute_list query;
        std::map<std::uint64_t, std::map<resource_id, told>> told_by;  // By server.
    };
    struct host {
        bool busy = false;  // A ULT is sending it the watches it lacks.
        resource_id watcher = resource_id::none;
        peer who;
        std::set<std::uint32_t> has;
        std::size_t told_bytes = 0;
    };

    void bring_up_to_date(std::uint64_t server);
    bool tell_one(std::uint64_t server);
    void forget(std::uint32_t watch);
    void settle(std::uint64_t server, std::uint32_t watch);
    /// False if already known. `what` becomes the kind of change as seen from here.
    bool note(host& from, std::map<resource_id, told>& those, resource_change::kind& what,
              const found_values& which);
    static std::size_t counted(const found_values& which) noexcept {
        return which.values.bytes().size() + 256;
    }
    /// `which` is no longer kept.
    void let_go(std::uint64_t server, const found_values& which) noexcept;
    void let_go_all(const watched& what) noexcept;
    void doubt(std::uint64_t server, std::uint32_t watch);  // With the lock held.

    engine& on_;
    const std::size_t most_bytes_;
    const std::chrono::milliseconds answer_limit_;
    const std::function<void(watched_change&&)> tell_;
    const procedure<in_ring::open_watcher> open_watcher_;
    const procedure<at_directory::watch> watch_;
    const procedure<at_directory::unwatch> unwatch_;
    counter& told_dropped_;  // Reports past the byte limit.
    std::weak_ptr<const membership_view> view_;
    std::weak_ptr<ring_peers> peers_;

    std::mutex lock_;  // Never held across a wait or a notification.
    std::uint32_t last_ = 0;
    std::size_t told_bytes_ = 0;
    std::map<std::uint32_t, watched> watches_;
    std::map<std::pair<resource_id, std::uint32_t>, std::uint32_t> numbers_;
    std::unordered_map<std::uint64_t, host> servers_;
};

}  // namespace amalgam::detail
