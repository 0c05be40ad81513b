#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <amalgam/core/hash.hpp>
#include <amalgam/flow/detail/graph_core.hpp>
#include <amalgam/flow/detail/node_body.hpp>

namespace amalgam::detail {

graph_core::graph_core() = default;
graph_core::~graph_core() = default;

std::size_t graph_core::add(std::string name, std::unique_ptr<node_body> body) {
    nodes_.push_back({std::move(name), std::move(body), {}, {}, {}});
    return nodes_.size() - 1;
}

void graph_core::connect(const graph_core& from_owner, std::size_t from, const graph_core& to_owner,
                         std::size_t to) {
    if (&from_owner != this || &to_owner != this) {
        foreign_ = "a pipeline joins blocks of another graph, expected blocks of its own";
        return;
    }
    nodes_[from].out.push_back(edges_.size());
    nodes_[to].in.push_back(edges_.size());
    edges_.push_back({from, to});
}

std::size_t graph_core::group(std::string_view name) {
    auto found = std::find(groups_.begin(), groups_.end(), name);
    if (found == groups_.end()) found = groups_.insert(groups_.end(), std::string(name));
    return static_cast<std::size_t>(found - groups_.begin());
}

void graph_core::assign(std::size_t group, const graph_core& owner,
                        const std::vector<std::size_t>& nodes) {
    if (&owner != this) {
        foreign_ = fmt::format(
            "the group \"{}\" was given a block of another graph, expected "
            "blocks of its own",
            groups_[group]);
        return;
    }
    for (std::size_t node : nodes)
        nodes_[node].groups.push_back(group);
}

status graph_core::check(const flow_config* config, std::string& sentence) const {
    sentence = find_fault(config);
    return {sentence.empty() ? errc::ok : errc::invalid};
}

std::string graph_core::find_fault(const flow_config* config) const {
    if (!foreign_.empty()) return foreign_;
    if (nodes_.empty()) return "the graph has no node, expected at least a source and a sink";
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
        std::string fault = fault_of_node(nodes_[i]);
        if (!fault.empty()) return fault;
        for (std::size_t j = 0; j < i; ++j)
            if (nodes_[i].name == nodes_[j].name)
                return fmt::format(
                    "two nodes are named \"{}\", expected a name of its own for "
                    "each",
                    nodes_[i].name);
    }
    std::string fault = fault_of_cycle();
    if (fault.empty()) fault = fault_of_groups(config);
    if (!fault.empty()) return fault;
    if (config != nullptr)
        for (const graph_edge& edge : edges_)
            if (fault = fault_of_cut(edge); !fault.empty()) return fault;
    return {};
}

std::string graph_core::fault_of_node(const graph_node& node) const {
    if (node.name.empty()) return "a node has no name, expected one; example: \"split\"";
    const auto takes = node.body->takes();
    const auto gives = node.body->gives();
    if (!takes.empty() && node.in.empty())
        return fmt::format(
            "the node \"{}\" gets items from nobody, expected a pipeline that "
            "leads to it; example: graph.pipeline(source, {})",
            node.name, node.name);
    if (!gives.empty() && node.out.empty())
        return fmt::format(
            "what the node \"{}\" sends goes to nobody, expected a pipeline that "
            "leads on; example: graph.pipeline({}, sink)",
            node.name, node.name);
    for (bool inward : {true, false}) {
        const auto& edges = inward ? node.in : node.out;
        if (edges.size() < 2) continue;
        auto other = [&](std::size_t i) -> const std::string& {
            const graph_edge& edge = edges_[edges[i]];
            return nodes_[inward ? edge.from : edge.to].name;
        };
        return fmt::format("the node \"{}\" {} both \"{}\" and \"{}\", expected one of them",
                           node.name, inward ? "gets items from" : "sends items to", other(0),
                           other(1));
    }
    return {};
}

std::string graph_core::fault_of_cycle() const {
    // Every node has one way in, so going back from a cycle never ends at a source.
    for (const graph_node& start : nodes_) {
        const graph_node* at = &start;
        for (std::size_t steps = 0; !at->in.empty(); ++steps) {
            if (steps > nodes_.size())
                return fmt::format(
                    "the node \"{}\" gets its items from itself, expected a "
                    "pipeline that starts at a source",
                    start.name);
            at = &nodes_[edges_[at->in.front()].from];
        }
    }
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
                "the config has a group \"{}\", which the graph has not, expected "
                "the graph's groups: {}",
                group.name, fmt::join(groups_, ", "));
    }
    for (const std::string& name : groups_)
        if (config->find(name) == nullptr)
            return fmt::format(
                "the graph has a group \"{}\", which the config has not, expected "
                "one of the config's groups: {}",
                name, fmt::join(configured, ", "));
    return {};
}

std::string graph_core::fault_of_cut(const graph_edge& edge) const {
    const graph_node& from = nodes_[edge.from];
    const graph_node& to = nodes_[edge.to];
    if (from.groups == to.groups || from.body->can_be_cut()) return {};
    return fmt::format(
        "the items between \"{}\" in group \"{}\" and \"{}\" in group \"{}\" "
        "cannot leave their process, expected a type that can be serialized: give "
        "it template <class A> void serialize(A& a), or put both nodes into one "
        "group",
        from.name, groups_[from.groups.front()], to.name, groups_[to.groups.front()]);
}

std::string graph_core::fingerprint() const {
    std::string text;
    for (const graph_node& node : nodes_) {
        text += fmt::format("node {} {} {}", node.name, node.body->takes(), node.body->gives());
        for (std::size_t group : node.groups)
            text += " " + groups_[group];
        text += "\n";
    }
    for (const graph_edge& edge : edges_)
        text += fmt::format("edge {} {}\n", edge.from, edge.to);
    return fmt::format("{:016x}", fnv1a(text));
}

}  // namespace amalgam::detail
