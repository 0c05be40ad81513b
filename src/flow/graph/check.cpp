#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <amalgam/flow/detail/graph_core.hpp>
#include <amalgam/flow/detail/node_body.hpp>

// Checks that a graph can run; returns one sentence about the first mistake.

namespace amalgam::detail {

status graph_core::check(const flow_config* config, std::string& sentence) const {
    sentence = find_fault(config);
    return {sentence.empty() ? errc::ok : errc::invalid};
}

std::string graph_core::find_fault(const flow_config* config) const {
    if (!wrong_.empty()) return wrong_;
    if (nodes_.empty()) return "the graph has no node, expected at least a source and a sink";
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
        std::string fault = fault_of_node(nodes_[i]);
        if (!fault.empty()) return fault;
        for (std::size_t j = 0; j < i; ++j)
            if (nodes_[i].name == nodes_[j].name)
                return fmt::format("two nodes are named \"{}\", expected a unique name for each",
                                   nodes_[i].name);
    }
    std::string fault = fault_of_cycle();
    if (fault.empty()) fault = fault_of_groups(config);
    if (!fault.empty()) return fault;
    for (const graph_edge& edge : edges_) {
        if (fault = fault_of_edge(edge); !fault.empty()) return fault;
        if (config == nullptr) continue;
        if (fault = fault_of_cut(edge); !fault.empty()) return fault;
        if (fault = fault_of_choice(edge, *config); !fault.empty()) return fault;
    }
    for (const ordered_nodes& farm : ordered_)
        if (config != nullptr)
            if (fault = fault_of_order(farm, *config); !fault.empty()) return fault;
    return {};
}

std::string graph_core::fault_of_node(const graph_node& node) const {
    if (node.name.empty()) return "a node has no name, expected one; example: \"split\"";
    const auto takes = node.body->takes();
    const auto gives = node.body->gives();
    if (!takes.empty() && node.in.empty())
        return fmt::format(
            "the node \"{}\" has no input, expected a pipeline that leads to it; example: "
            "graph.pipeline(source, {})",
            node.name, node.name);
    if (!gives.empty() && node.out.edges.empty())
        return fmt::format(
            "the output of the node \"{}\" goes nowhere, expected a pipeline that leads on; "
            "example: graph.pipeline({}, sink)",
            node.name, node.name);
    return {};
}

std::string graph_core::fault_of_cycle() const {
    // Topological order: nodes never reached are in a cycle.
    std::vector<std::size_t> waits(nodes_.size(), 0);
    for (const graph_edge& edge : edges_)
        if (!edge.back) ++waits[edge.to];
    std::vector<std::size_t> next;
    for (std::size_t i = 0; i < nodes_.size(); ++i)
        if (waits[i] == 0) next.push_back(i);
    for (std::size_t i = 0; i < next.size(); ++i)
        for (std::size_t edge : nodes_[next[i]].out.edges)
            if (--waits[edges_[edge].to] == 0) next.push_back(edges_[edge].to);
    for (std::size_t i = 0; i < nodes_.size(); ++i)
        if (waits[i] != 0)
            return fmt::format(
                "the node \"{}\" is in a cycle or behind one, expected a pipeline that starts at a "
                "source, or feedback()",
                nodes_[i].name);
    return {};
}

std::string graph_core::fault_of_edge(const graph_edge& edge) const {
    const graph_node& from = nodes_[edge.from];
    const graph_node& to = nodes_[edge.to];
    if (edge.is_on_demand() && edge.routing->queue_items > most_queue_items)
        return fmt::format(
            "the node \"{}\" gets {} items on demand, expected a number from 1 to {}; example: "
            "on_demand(2)",
            to.name, edge.routing->queue_items, most_queue_items);
    if (edge.fused && to.in.size() > 1)
        return fmt::format(
            "the node \"{}\" is combined with \"{}\" and also has other inputs, expected only that "
            "one",
            to.name, from.name);
    if (edge.fused && (from.groups != to.groups || from.pool != to.pool))
        return fmt::format(
            "the nodes \"{}\" and \"{}\" are combined, expected the same {} for both", from.name,
            to.name, from.groups != to.groups ? "group" : "pool");
    return {};
}

std::string graph_core::fault_of_groups(const flow_config* config) const {
    if (groups_.empty() && config == nullptr) return {};
    const std::string example = groups_.empty() ? config->groups.front().name : groups_.front();
    for (const graph_node& node : nodes_) {
        if (node.groups.empty())
            return fmt::format(
                "the node \"{}\" is in no group, expected one; "
                "example: graph.group(\"{}\").add({})",
                node.name, example, node.name);
        if (node.groups.size() > 1)
            return fmt::format("the node \"{}\" is in the groups \"{}\" and \"{}\", expected one",
                               node.name, groups_[node.groups[0]], groups_[node.groups[1]]);
    }
    for (std::size_t i = 0; i < groups_.size(); ++i) {
        bool used = std::any_of(nodes_.begin(), nodes_.end(),
                                [i](const auto& node) { return node.groups.front() == i; });
        if (!used)
            return fmt::format(
                "the group \"{0}\" has no node, expected at least one; "
                "example: graph.group(\"{0}\").add(node)",
                groups_[i]);
    }
    if (config == nullptr) return {};
    std::vector<std::string> configured;
    for (const group_config& group : config->groups) {
        configured.push_back(group.name);
        if (std::find(groups_.begin(), groups_.end(), group.name) == groups_.end())
            return fmt::format(
                "the config has a group \"{}\" that the graph does not have, expected the graph's "
                "groups: {}",
                group.name, fmt::join(groups_, ", "));
    }
    for (const std::string& name : groups_)
        if (config->find(name) == nullptr)
            return fmt::format(
                "the graph has a group \"{}\" that the config does not have, expected one of the "
                "config's groups: {}",
                name, fmt::join(configured, ", "));
    return {};
}

status graph_core::check_checkpoints(std::string& sentence) const {
    sentence = fault_of_checkpoints();
    return {sentence.empty() ? errc::ok : errc::unsupported};
}

std::string graph_core::fault_of_checkpoints() const {
    if (loops_ != 0)
        return "the graph has a loop (feedback()), and checkpoints are asked for, expected one or "
               "the other: what is in a loop is not saved";
    if (!ordered_.empty())
        return fmt::format(
            "\"{}\" is of an ordered farm, and checkpoints are asked for, expected a farm or no "
            "checkpoints: results that wait for earlier ones are not saved",
            nodes_[ordered_.front().emitter].name);
    for (const graph_node& node : nodes_)
        if (const std::string fault = node.body->fault_of_saving(); !fault.empty())
            return fmt::format("checkpoints are asked for, but the node \"{}\" {}", node.name,
                               fault);
    return {};
}

/// Routing by key, by a function or to all needs every worker, but in a group of several processes
/// a node knows only the workers of its own process.
std::string graph_core::fault_of_choice(const graph_edge& edge, const flow_config& config) const {
    const graph_node& from = nodes_[edge.from];
    const graph_node& to = nodes_[edge.to];
    if (edge.routing == nullptr || from.groups != to.groups) return {};
    if (edge.routing->how != spread::chosen && edge.routing->how != spread::broadcast) return {};
    const std::string& group = groups_[from.groups.front()];
    const std::size_t processes = config.find(group)->replicas();
    if (processes == 1) return {};
    return fmt::format(
        "\"{}\" sends by key, by a function or to all, and also to \"{}\" in its own group \"{}\", "
        "which has {} processes, each with its own \"{}\"; expected one process, or another group "
        "for one of the two",
        from.name, to.name, group, processes, to.name);
}

/// Each process of a replicated emitter would number from 0, and each replicated collector would
/// wait for numbers sent to another one. A farm contained whole in each process works.
std::string graph_core::fault_of_order(const ordered_nodes& farm, const flow_config& config) const {
    const auto group_of = [this](std::size_t node) { return nodes_[node].groups.front(); };
    const std::size_t home = group_of(farm.emitter);
    const bool is_whole = group_of(farm.collector) == home &&
                          std::all_of(farm.workers.begin(), farm.workers.end(),
                                      [&](std::size_t worker) { return group_of(worker) == home; });
    if (is_whole) return {};
    for (const std::size_t node : {farm.emitter, farm.collector}) {
        const std::string& group = groups_[group_of(node)];
        const std::size_t processes = config.find(group)->replicas();
        if (processes == 1) continue;
        return fmt::format(
            "\"{}\" of an ordered farm is in group \"{}\", which has {} processes, expected one, "
            "because {} there, or all nodes of the farm in that group; example: a group with "
            "\"replicas\" for its workers only",
            nodes_[node].name, group, processes,
            node == farm.emitter ? "items are numbered" : "results are sorted");
    }
    return {};
}

std::string graph_core::fault_of_cut(const graph_edge& edge) const {
    const graph_node& from = nodes_[edge.from];
    const graph_node& to = nodes_[edge.to];
    if (from.groups == to.groups) return {};
    if (from.body->can_be_cut()) return {};
    return fmt::format(
        "the items between \"{}\" in group \"{}\" and \"{}\" in group \"{}\" cannot be sent to "
        "another process, expected a serializable type; give it template <class A> void "
        "serialize(A& a), or put both nodes into one group",
        from.name, groups_[from.groups.front()], to.name, groups_[to.groups.front()]);
}

}  // namespace amalgam::detail
