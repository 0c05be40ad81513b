#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <mutex>
#include <optional>
#include <unordered_map>

#include <amalgam/directory/context.hpp>
#include <amalgam/directory/resource_id.hpp>
#include <amalgam/rpc/peer.hpp>

namespace amalgam::detail {

/// How a context is reached, by what goes there.
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

/// Where resources are, as far as it is known: which context a resource belongs to, and how that
/// is reached.
///
/// Threads: any.
/// Cost:    a hit: a lock and a hash look-up. Each of the two forgets everything when it is full.
class locations {
public:
    /// Of each so many are kept.
    explicit locations(std::size_t most = 65536) noexcept : most_(most) {}

    /// How the context of that resource is reached; nothing: it is not known.
    std::optional<peer> find(resource_id which, traffic what) const;
    /// How that context is reached for small messages.
    std::optional<peer> find_context(resource_id context) const;

    void learn_context(resource_id context, const ways_there& by);
    /// Precondition: the context was learnt; otherwise nothing is.
    void learn(resource_id which, resource_id context);

    bool knows(resource_id which) const;
    /// A message came from that resource: answers go back there, also when nobody could find it.
    /// Changes nothing that is known.
    void learn_sender(resource_id which, const ways_there& by);

    /// It is not there, or not any more.
    void forget(resource_id which);
    /// That context is gone, or another one at its place; and so are all resources it had.
    void forget(const peer& gone);

private:
    const std::size_t most_;
    mutable std::mutex lock_;
    std::unordered_map<resource_id, ways_there> contexts_;
    std::unordered_map<resource_id, ways_there> resources_;
};

}  // namespace amalgam::detail
