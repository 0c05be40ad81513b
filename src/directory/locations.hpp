#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include <amalgam/directory/resource_id.hpp>
#include <amalgam/rpc/peer.hpp>

namespace amalgam::detail {

/// Where resources are, as far as it is known: which context a resource belongs to, and how that
/// is reached.
///
/// Threads: any.
/// Cost:    a hit: a lock and a hash look-up. Each of the two forgets everything when it is full.
class locations {
public:
    static constexpr std::size_t most = 65536;  ///< Of each.

    /// How the context of that resource is reached; nothing: it is not known.
    std::optional<peer> find(resource_id which) const;
    /// How that context is reached.
    std::optional<peer> find_context(resource_id context) const;

    void learn_context(resource_id context, const peer& by);
    /// Precondition: the context was learnt; otherwise nothing is.
    void learn(resource_id which, resource_id context);

    /// A message came from that resource by that peer: answers go back there, also when nobody
    /// could find it. Changes nothing that is known.
    void learn_sender(resource_id which, const peer& by);

    /// It is not there, or not any more.
    void forget(resource_id which);
    /// That context is gone, or another one at its place; and so are all resources it had.
    void forget(const peer& gone);

private:
    mutable std::mutex lock_;
    std::unordered_map<resource_id, peer> contexts_;
    std::unordered_map<resource_id, peer> resources_;
};

}  // namespace amalgam::detail
