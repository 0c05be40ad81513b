#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include <amalgam/core/result.hpp>
#include <amalgam/rpc/peer.hpp>

#include "flow/channel/receiver.hpp"
#include "flow/channel/run_context.hpp"
#include "flow/channel/sender.hpp"

namespace amalgam::detail {

/// All channels of a process: one for each edge of the graph that enters or leaves its group.
///
/// Owner:   owns the channels; borrows the context.
/// Threads: set up by one; then the engine's ULTs.
class channel_set {
public:
    /// Told of a receiver that a sender lost.
    using on_lost = std::function<void(process_id receiver, const failure& why)>;

    /// Derives the channels from the graph and attaches them to the nodes.
    channel_set(run_context& run, on_lost lost);
    channel_set(const channel_set&) = delete;
    channel_set& operator=(const channel_set&) = delete;

    struct out_edge {
        std::size_t to_group;
        /// One for all processes of the group; or one per process, if the graph determines the
        /// receiver of each item.
        std::vector<std::unique_ptr<sender>> channels;

        sender& to(std::size_t replica) const {
            return *channels[channels.size() == 1 ? 0 : replica];
        }
        /// The replica's number within that channel.
        std::size_t number(std::size_t replica) const { return channels.size() == 1 ? replica : 0; }
    };
    struct in_edge {
        std::size_t from_group;
        std::unique_ptr<receiver> channel;
        const loop_count* back_in = nullptr;  ///< The loop it feeds back into.
    };
    /// By the edge's number in the graph. Failure: throws error{invalid} if it does not lead here.
    const out_edge& out(std::uint32_t edge) const;
    const in_edge& in(std::uint32_t edge) const;

    /// Groups that this process sends to, or receives from.
    std::vector<std::size_t> groups(bool that_send_to_us) const;
    /// That receiver has joined: channels to it may send.
    void connect(process_id receiver, const peer& at);
    /// Whether items are still exchanged with that process.
    bool is_open(process_id who, bool sends_to_us) const;
    /// Whether it has items of ours that it has not consumed.
    bool has_unconsumed(process_id receiver) const;
    /// Ends every node that waits in a channel.
    void stop();

private:
    void add_out(std::size_t edge, std::size_t to_group, const on_lost& lost);
    void add_in(std::size_t edge, std::size_t from_group);
    const loop_count* loop_of_way_back(std::size_t edge) const;

    run_context& run_;
    std::map<std::size_t, out_edge> out_;  // By edge.
    std::map<std::size_t, in_edge> in_;
};

}  // namespace amalgam::detail
