#pragma once

#include <cstdint>

#include <amalgam/rpc/engine.hpp>

#include "directory/membership/peers.hpp"
#include "directory/membership/procedures.hpp"
#include "directory/membership/runtime.hpp"
#include "directory/membership/view.hpp"
#include "directory/queries/broadcast_queries.hpp"

namespace amalgam::detail {

/// Queries to all other servers: by broadcast, or over trees.
///
/// A tree is built anew for each query: the server responsible for a part of the ring splits it,
/// and delegates each piece to a server in it; if that one does not answer, it handles the piece
/// itself. So trees need no upkeep, and servers need not agree on the members: a query for a part
/// reaches each server in it that is known along the way.
/// Threads: any; they park.
class ring_queries {
public:
    using taker = broadcast_queries::taker;

    ring_queries(ring_runtime& runtime, membership_view& view, ring_peers& peers,
                 broadcast_queries& broadcasts);
    void start();

    /// Finds a resource of another server, by id or attributes.
    part_answer find(resource_id id, const attribute_view& query);
    /// Passes the first answers of all other servers that have any to `take`, as they arrive.
    /// Returns at least how many did not answer.
    std::uint32_t search(const attribute_view& query, const taker& take);
    /// The next answer of one of them; `over` also if it is gone, or silent, as `silent` then says.
    next_answer next(const first_answer& of);
    void stop(const first_answer& what) noexcept;

private:
    part_answer find_by_id(resource_id id, const attribute_view& query);
    part_answer find_in(ring_part part, attribute_view query);
    part_answer find_behind(const ring_part& part, const attribute_view& query);
    first_answers search_in(ring_part part, attribute_view query);
    std::uint32_t search_behind(const ring_part& part, const attribute_view& query,
                                const taker& take);
    next_answer next_here(std::uint64_t search);
    void stop_here(std::uint64_t search);

    ring_runtime& runtime_;
    membership_view& view_;
    ring_peers& peers_;
    broadcast_queries& broadcasts_;
    const procedure<in_ring::find> find_;
    const procedure<in_ring::search> search_;
    const procedure<in_ring::next> next_;
    const procedure<in_ring::stop> stop_;
    const procedure<at_directory::find> find_there_;
};

}  // namespace amalgam::detail
