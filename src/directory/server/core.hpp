#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <amalgam/core/metrics.hpp>
#include <amalgam/directory/directory_server.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/ult.hpp>

#include "directory/protocol/background.hpp"
#include "directory/protocol/procedures.hpp"
#include "directory/protocol/role_policy.hpp"
#include "directory/protocol/served.hpp"
#include "directory/queries/remote_searches.hpp"
#include "directory/queries/remote_watches.hpp"
#include "directory/resources/registry.hpp"
#include "directory/server/ring.hpp"

namespace amalgam::detail {

/// A registry served on an engine. Maps peers to contexts, and notifies contexts of changes.
///
/// Owner:   shared with the handlers that run.
/// Threads: any.
class directory_core final : public ring_user, public std::enable_shared_from_this<directory_core> {
public:
    directory_core(engine& on, const directory_options& options);

    void start();
    /// Stops serving.
    void stop() noexcept;

    std::size_t contexts() const;
    std::size_t resources() const;
    std::size_t servers() const { return ring_->view().size(); }

private:
    /// A connected context, and the notifications still to be sent to it.
    struct client {
        peer who;
        bool is_server = false;
        bool heard = true;  // Responded since the last ping.
        std::deque<watched_change> untold;
        std::size_t untold_bytes = 0;  // Bytes of their values.
        bool missed = false;           // Notifications were dropped: too many.
        bool telling = false;
    };

    /// A search that has used up this server's own answers.
    struct spread {
        bool asked = false;      // The other servers were asked for first answers ...
        bool gathering = false;  // ... which are still arriving.
        std::deque<first_answer>
            others;  // `found` is yet to be returned, or none; there may be more.
        std::uint32_t silent = 0;
        bool busy = false;
        bool stopped = false;  // No further answers are wanted.
        event changed;
    };
    using search_key = std::pair<resource_id, std::uint32_t>;

    // ring_user.
    found_values find_here(const attribute_view& query) override;
    std::optional<first_answer> search_here(const attribute_view& query) override;
    next_answer next_here(std::uint64_t search) override;
    void stop_here(std::uint64_t search) override;
    void own_range(std::uint32_t range, bool fresh) override;
    void retire_range(std::uint32_t range) override;
    void see_servers(const std::vector<std::uint64_t>& keys) override {
        remote_watches_->see(keys);
    }
    void lose_server(std::uint64_t key) override { remote_watches_->lose(key); }

    // Procedures served: see at_directory.
    reply<resource_id> open(attribute_view what);
    reply<bool> reopen(resource_id context, resource_id which, attribute_view what);
    /// A reader's context has none of its attributes.
    resource_id open_for_caller(attribute_view what, resource_id wanted);
    void close(resource_id context);
    reply<resource_id> add(resource_id context, attribute_view what);
    reply<bool> remove(resource_id context, resource_id id);
    reply<bool> set(resource_id context, resource_id id, attribute_view changes);
    found_values find(resource_id id, attribute_view query);
    found_values find_long(attribute_view query);
    part_answer find_elsewhere(resource_id id, attribute_view query);
    reply<std::uint32_t> search(resource_id context, attribute_view query);
    reply<next_answer> next(resource_id context, std::uint32_t search);
    void stop_search(resource_id context, std::uint32_t search);
    reply<bool> watch(resource_id context, std::uint32_t number, attribute_view query);
    void unwatch(resource_id context, std::uint32_t number);
    reply<resource_id> open_watcher();
    bool make_way();
    void remote_change(std::uint64_t server, std::uint32_t watch, resource_change::kind what,
                       found_values which);

    /// Runs `work()` with the lock held, and returns its result or error. Then notifies the
    /// watchers of what it changed.
    template <typename Work>
    auto alone(Work work) -> reply<decltype(work())>;
    void start_rest();
    void check_is(resource_id context);
    void claim_if_few();  // Claims ids if few are free.
    next_answer next_elsewhere(const search_key& which, const std::shared_ptr<spread>& state,
                               const attribute_list& query);
    void gather(const std::shared_ptr<spread>& into, const attribute_list& query);
    void end_search(const search_key& which);
    void close_one(resource_id context);  // With the lock held.
    void close_all_of(const peer& gone);
    void keep_looking();  // With the lock held. Keeps checking that contexts respond.
    void look_after_contexts();
    void look_at(const std::vector<std::pair<resource_id, peer>>& silent);
    void drop(resource_id context, const peer& who);
    void note(watched_change&& change);
    void tell(resource_id context);
    void tell_end() noexcept;

    engine& on_;
    const directory_options options_;
    const std::shared_ptr<role_policy> lets_in_;
    const procedure<at_context::change> change_;
    const procedure<in_ring::change> change_there_;
    const procedure<at_context::dropped> dropped_;
    const procedure<std::uint64_t(std::uint64_t)> ping_;
    served_members served_{on_, lets_in_};
    peer_lost_subscription losses_;

    std::shared_ptr<directory_ring> ring_;
    std::shared_ptr<remote_watches> remote_watches_;

    mutable std::mutex lock_;  // Never held across a wait.
    registry registry_;
    std::unordered_map<resource_id, client> clients_;
    std::unordered_map<peer, std::size_t> contexts_of_;  // How many of the clients, by process.
    std::unordered_map<peer, resource_id> servers_;      // The clients that are servers.
    remote_searches remote_searches_{registry_};
    std::map<search_key, std::shared_ptr<spread>> spread_;
    std::vector<resource_id> to_tell_;  // Contexts to notify; added with the lock held.
    bool looking_ = false;
    bool ended_ = false;
    event stopping_;
    metric_registry::registration numbers_;
};

template <typename Work>
auto directory_core::alone(Work work) -> reply<decltype(work())> {
    std::vector<resource_id> whom;
    auto result = [&] {
        const std::lock_guard one(lock_);
        auto what = reply_of(work);
        whom.swap(to_tell_);
        return what;
    }();
    for (const resource_id each : whom)
        post_in_background(on_.pool(), [self = shared_from_this(), each] { self->tell(each); });
    return result;
}

}  // namespace amalgam::detail
