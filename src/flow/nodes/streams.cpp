#include "flow/nodes/streams.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <sched.h>

namespace amalgam::detail {

std::size_t usable_cores() noexcept {
    cpu_set_t set;
    if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    return static_cast<std::size_t>(CPU_COUNT(&set));
}

std::size_t streams_for(std::size_t threads, const graph_core& graph,
                        std::span<const std::size_t> nodes) {
    if (threads != 0) return threads;
    const auto without_pool =
        static_cast<std::size_t>(std::count_if(nodes.begin(), nodes.end(), [&](std::size_t node) {
            return graph.nodes()[node].pool.empty();
        }));
    return std::max<std::size_t>(std::min(without_pool, usable_cores()), 1);
}

node_streams::node_streams(const graph_core& graph, std::span<const std::size_t> nodes,
                           const run_options& options)
    : node_streams(graph, nodes, options, {}) {
    make("", streams_for(options.threads, graph, nodes), {});
}

node_streams::node_streams(const graph_core& graph, std::span<const std::size_t> nodes,
                           const run_options& options, std::vector<execution_stream*> shared) {
    all_[""] = std::move(shared);
    for (const std::size_t node : nodes) {
        const graph_node& one = graph.nodes()[node];
        if (all_.contains(one.pool)) continue;
        const auto found = options.pools.find(one.pool);
        if (one.cpu >= 0)
            make(one.pool, 1, {one.cpu});
        else if (found == options.pools.end())
            make(one.pool, 1, {});
        else
            make(one.pool, std::max(found->second.threads, 1u), found->second.cpus);
    }
}

void node_streams::make(const std::string& pool, std::size_t threads,
                        const std::vector<int>& cpus) {
    for (std::size_t i = 0; i < threads; ++i) {
        execution_stream_options options;
        options.name = fmt::format("{}{}", pool.empty() ? "flow" : pool + ".", i);
        if (i < cpus.size()) options.cpu = cpus[i];
        owned_.push_back(std::make_unique<execution_stream>(options));
        all_[pool].push_back(owned_.back().get());
    }
}

}  // namespace amalgam::detail
