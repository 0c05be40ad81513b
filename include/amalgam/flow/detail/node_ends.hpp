#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <amalgam/flow/detail/channel.hpp>
#include <amalgam/flow/detail/doorbell.hpp>
#include <amalgam/flow/detail/loop_count.hpp>
#include <amalgam/flow/detail/ring.hpp>
#include <amalgam/flow/detail/wait_clock.hpp>
#include <amalgam/flow/routing.hpp>

namespace amalgam::detail {

class node_body;
struct node_ends;

/// Where items of one edge come from: one of the first two.
struct inlet {
    ring_core* here = nullptr;
    channel_in* there = nullptr;
    loop_count* back_in = nullptr;     ///< The loop whose way back this is.
    std::vector<loop_count*> entered;  ///< Loops that an item enters by this edge.
};

/// Where items of one edge go: one of the first three.
struct taker {
    ring_core* here = nullptr;
    channel_out* there = nullptr;
    node_body* inside = nullptr;  ///< A node fused with this one, and its ends.
    node_ends* inside_ends = nullptr;
};

/// A taker, or several parts, of which `routing` chooses one for each item.
struct branch {
    const routing_core* routing = nullptr;  ///< nullptr: it is `to`.
    std::vector<branch> parts;
    taker to;
};

/// What a node sends to as one: the next block.
struct port_ends {
    branch root;
    std::vector<loop_count*> within;  ///< Loops that both ends of these edges are in.
    const void* again = nullptr;      ///< A way back: const std::function<bool(const Out&)>*.
    loop_count* back_in = nullptr;    ///< A way back: its loop.
};

/// All that a node has to do with in this process.
struct node_ends {
    std::vector<inlet> in;
    port_ends out;
    std::vector<port_ends> back;  ///< Asked before `out`, the innermost loop's first.
    std::vector<loop_count*> loops;
    doorbell in_bell;
    doorbell out_bell;
    wait_clock waits_for_input;
    wait_clock waits_for_output;
    std::atomic<std::uint64_t> taken_inside{0};  ///< Items, by a fused node.
};

}  // namespace amalgam::detail
