#include <algorithm>
#include <chrono>

#include <amalgam/core/clock.hpp>
#include <amalgam/flow/config.hpp>
#include <amalgam/flow/report.hpp>

#include "flow/nodes/local_nodes.hpp"

// Statistics of this process's nodes.

namespace amalgam::detail {
namespace {

std::uint64_t items_of(const inlet& in) {
    if (in.here != nullptr) return in.here->taken();
    return in.there != nullptr ? in.there->items_taken() : 0;
}

/// Adds the items sent to one receiver of an edge.
void add(channel_report& all, const taker& to) {
    if (to.here != nullptr) {
        const std::uint64_t taken = to.here->taken();
        const std::uint64_t published = std::max(to.here->published(), taken);
        all.items += published;
        all.waiting += published - taken;
        all.most_waiting += std::max(to.here->deepest(), published - taken);
    } else if (to.there != nullptr) {
        const channel_out::traffic some = to.there->traffic_so_far();
        all.items += some.items;
        all.bytes += some.bytes;
        all.waiting += some.waiting;
        all.most_waiting += some.most_waiting;
        all.unconsumed_bytes += some.unconsumed_bytes;
        all.between_groups = true;
    } else {
        all.items += to.inside_ends->taken_inside.load(std::memory_order_relaxed);
    }
}

}  // namespace

run_report local_nodes::report() const {
    const std::uint64_t now = cycles();
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start_time_;
    const double tick =
        now > start_ticks_ ? passed.count() / static_cast<double>(now - start_ticks_) : 0;
    const std::string process = process_label(where_.group, where_.replica, where_.replicas);
    run_report all;
    for (const auto& node : nodes_) {
        const graph_node& about = graph_.nodes()[node->index];
        node_report one;
        one.name = about.name;
        one.process = process;
        one.taken = node->ends.taken_inside.load(std::memory_order_relaxed);
        for (const inlet& in : node->ends.in)
            one.taken += items_of(in);
        for (const auto& [edge, takers] : node->out) {
            if (takers.empty()) continue;  // A sink.
            channel_report channel;
            channel.from = about.name;
            channel.to = graph_.nodes()[graph_.edges()[edge].to].name;
            channel.process = process;
            for (const taker& to : takers)
                add(channel, to);
            one.given += channel.items;
            all.channels.push_back(std::move(channel));
        }
        if (node->is_fused) {
            one.inside = graph_.nodes()[host_of(node->index).index].name;
        } else if (const std::uint64_t started = node->started.load(); started != 0) {
            const std::uint64_t ended = node->ended.load();
            const std::uint64_t until = ended != 0 ? ended : now;
            one.seconds = tick * static_cast<double>(until - std::min(until, started));
            one.waited_for_input =
                tick * static_cast<double>(node->ends.waits_for_input.ticks(until));
            one.waited_for_output =
                tick * static_cast<double>(node->ends.waits_for_output.ticks(until));
            one.ended = ended != 0;
            node->samples.divide(one);
        }
        all.nodes.push_back(std::move(one));
    }
    process_report self;
    self.name = process;
    self.seconds = passed.count();
    self.processor_seconds = std::max(processor_seconds() - start_processor_seconds_, 0.0);
    self.resident_bytes = resident_bytes();
    self.cores = usable_cores();
    all.processes.push_back(std::move(self));
    return all;
}

}  // namespace amalgam::detail
