#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <amalgam/core/detail/memory.hpp>
#include <amalgam/flow/detail/channel.hpp>
#include <amalgam/flow/detail/doorbell.hpp>
#include <amalgam/flow/detail/loop_count.hpp>
#include <amalgam/flow/detail/node_record.hpp>
#include <amalgam/flow/detail/ring.hpp>
#include <amalgam/flow/detail/wait_clock.hpp>
#include <amalgam/flow/routing.hpp>

namespace amalgam::detail {

class node_body;
struct node_ends;

/// Source of an edge's items: one of the first two.
struct inlet {
    ring_core* here = nullptr;
    channel_in* there = nullptr;
    loop_count* back_in = nullptr;     ///< For a feedback edge: its loop.
    std::vector<loop_count*> entered;  ///< Loops that items enter over this edge.
};

/// Destination of an edge's items: one of the first three.
struct taker {
    ring_core* here = nullptr;
    channel_out* there = nullptr;
    node_body* inside = nullptr;  ///< A node fused with this one, with its ends.
    node_ends* inside_ends = nullptr;
};

/// A taker, or several parts, among which `routing` chooses for each item.
struct branch {
    const routing_core* routing = nullptr;  ///< nullptr: a single taker, `to`.
    std::vector<branch> parts;
    taker to;
};

/// A single destination of a node's output: the next block.
struct port_ends {
    branch root;
    std::vector<loop_count*> within;  ///< Loops that contain both ends of these edges.
    const void* again = nullptr;      ///< For feedback: const std::function<bool(const Out&)>*.
    loop_count* back_in = nullptr;    ///< For feedback: its loop.
};

/// A node's connections in this process.
struct node_ends {
    std::vector<inlet> in;
    port_ends out;
    std::vector<port_ends> back;  ///< Tried before `out`, the innermost loop's first.
    std::vector<loop_count*> loops;
    doorbell in_bell;
    doorbell out_bell;
    wait_clock waits_for_input;
    wait_clock waits_for_output;
    std::atomic<std::uint64_t> taken_inside{0};  ///< Items taken by a fused node.
    std::vector<std::uint8_t> ended_inputs;      ///< As in node_record.
    node_marks* marks = nullptr;                 ///< nullptr: there are no checkpoints.
    const node_record* restored = nullptr;       ///< What it goes on from; or nullptr.
};

}  // namespace amalgam::detail
