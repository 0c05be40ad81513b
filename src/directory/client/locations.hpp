#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>

#include <amalgam/directory/context.hpp>
#include <amalgam/directory/resource_id.hpp>
#include <amalgam/rpc/peer.hpp>

namespace amalgam::detail {

/// Peers that reach a context, by kind of traffic.
struct ways_there {
    std::array<peer, 3> by{};

    ways_there() = default;
    explicit ways_there(const peer& only) { by.fill(only); }
    const peer& operator[](traffic what) const noexcept {
        return by[static_cast<std::size_t>(what)];
    }
    bool use(const peer& who) const noexcept {
        return std::find(by.begin(), by.end(), who) != by.end();
    }
};

/// Known locations of resources: which context owns a resource, and how to reach it.
///
/// Threads: any.
/// Cost:    find(): a few loads for what this thread found lately, if nothing changed since; else a
///          lock and a hash look-up. Each of the two tables is cleared when full, but what is known
///          because of messages pushes out nothing that was looked up for other reasons.
class locations {
public:
    /// `most`: entries kept per table.
    explicit locations(std::size_t most = 65536) noexcept : most_(most) {}

    /// The peer to reach that resource's context; empty if unknown.
    std::optional<peer> find(resource_id which, traffic what) const {
        if (const peer* const last = find_last(which, what)) [[likely]]
            return *last;
        return look_up(which, what);
    }
    /// The same, if it is among what this thread found last and nothing changed since; else null.
    /// Valid until this thread looks for another one. A thread keeps several, as many programs send
    /// to a few resources in turn.
    const peer* find_last(resource_id which, traffic what) const noexcept {
        const found& last = found_last()[place_of(which, what)];
        const bool is_it = last.which == which && last.what == what && last.by_table == number_ &&
                           last.changes == changes();
        return is_it ? &last.by : nullptr;
    }
    /// The peer to reach that context for small messages.
    std::optional<peer> find_context(resource_id context) const;

    void learn_context(resource_id context, const ways_there& by);
    /// Precondition: the context is known; otherwise does nothing. `for_sender`: only because a
    /// message came from there. It pushes out nothing that was looked up for other reasons.
    void learn(resource_id which, resource_id context, bool for_sender = false);

    /// Begins a look-up, unless the path is known by now: returns it. Until all look-ups of a
    /// resource have ended, a path that only a message has shown is not found: they may find
    /// another, and what is sent by that could overtake what was sent by the first.
    std::optional<peer> begin_look_up(resource_id which, traffic what);
    void end_look_up(resource_id which) noexcept;
    /// The same as find(), also during look-ups.
    std::optional<peer> find_shown(resource_id which, traffic what) const;

    bool knows(resource_id which) const;
    /// Whether one of the paths to that resource is this one.
    bool uses(resource_id which, const peer& by) const;
    /// The same as find(), if a look-up found it, not only a message.
    std::optional<peer> find_looked_up(resource_id which) const;
    /// A message came from that resource: replies use the same path, even if no lookup found it.
    /// Does not replace known locations.
    void learn_sender(resource_id which, const ways_there& by);

    /// How many resources, or contexts, have an entry.
    std::size_t resources() const;
    std::size_t contexts() const;

    /// Grows with each change: what was found is still so while it is the same.
    std::uint64_t changes() const noexcept { return changes_.load(std::memory_order_acquire); }

    /// The resource is not, or no longer, there.
    void forget(resource_id which);
    /// That context is gone or was replaced, along with all its resources.
    void forget(const peer& gone);

private:
    /// What a thread found last.
    struct found {
        std::uint64_t by_table = 0;
        std::uint64_t changes = 0;
        resource_id which = resource_id::none;
        traffic what = traffic::small;
        peer by;
    };
    static constexpr std::size_t kept_by_thread = 16;
    using found_by_thread = std::array<found, kept_by_thread>;
    static found_by_thread& found_last() noexcept;
    /// Ids that were given out one after the other do not meet.
    std::size_t place_of(resource_id which, traffic what) const noexcept {
        return (static_cast<std::uint32_t>(which) + 4 * static_cast<std::size_t>(what) +
                first_place_) %
               kept_by_thread;
    }
    std::optional<peer> look_up(resource_id which, traffic what) const;
    static std::uint64_t next_number() noexcept;

    /// With the lock held.
    void changed() noexcept { changes_.fetch_add(1, std::memory_order_release); }

    const std::size_t most_;
    const std::uint64_t number_ = next_number();  // Not 0; no two tables of a process share one.
    const std::size_t first_place_ = static_cast<std::size_t>(3 * number_);  // See place_of().
    mutable std::mutex lock_;
    std::atomic<std::uint64_t> changes_{0};
    struct location : ways_there {
        bool looked_up = false;
        bool is_sender = false;  ///< Known only because of a message.
    };
    void forget_senders() noexcept;  ///< With the lock held.
    /// With the lock held; null: not known, or not before its look-ups have ended.
    const location* found_now(resource_id which) const;

    std::unordered_map<resource_id, ways_there> contexts_;
    std::unordered_map<resource_id, location> resources_;
    std::unordered_map<resource_id, std::size_t> look_ups_;  ///< Under way: how many.
    std::size_t senders_ = 0;  ///< Of resources_, those known only because of a message.
};

}  // namespace amalgam::detail
