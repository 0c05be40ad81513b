#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/detail/printable.hpp>
#include <amalgam/core/hash.hpp>
#include <amalgam/flow/detail/graph_core.hpp>
#include <amalgam/flow/detail/node_body.hpp>

namespace amalgam::detail {

graph_part after(const graph_part& first, const graph_part& second) {
    graph_part both = first;
    both.exits = second.exits;
    both.nodes.insert(both.nodes.end(), second.nodes.begin(), second.nodes.end());
    return both;
}

graph_core::graph_core() = default;
graph_core::~graph_core() = default;

std::size_t graph_core::add(std::string_view name, std::unique_ptr<node_body> body) {
    graph_node node;
    node.name = printable_name(name);
    if (node.name != name && wrong_.empty())
        wrong_ = fmt::format(
            "the name of the node \"{}\" has control characters, expected printable text; example: "
            "\"split\"",
            node.name);
    node.body = std::move(body);
    nodes_.push_back(std::move(node));
    return nodes_.size() - 1;
}

bool graph_core::is_ours(const graph_part& part, std::string_view what) {
    if (part.owner == this) return true;
    wrong_ = fmt::format("{} a block of another graph, expected blocks of this one", what);
    return false;
}

graph_port graph_core::port_to(std::size_t from, const graph_part& to, bool back) {
    graph_port port;
    port.to = *to.in;
    for_each_node(port.to, [&](way_in& node, const std::shared_ptr<const routing_core>& how) {
        graph_edge edge;
        edge.from = from;
        edge.to = node.number;
        edge.routing = how;
        edge.back = back;
        node.number = edges_.size();
        nodes_[edge.to].in.push_back(edges_.size());
        port.edges.push_back(edges_.size());
        edges_.push_back(std::move(edge));
    });
    return port;
}

/// Records the mistake.
bool graph_core::is_joined(std::size_t from, const graph_part& to) {
    const graph_port& out = nodes_[from].out;
    if (out.edges.empty()) return false;
    if (!wrong_.empty()) return true;
    const std::string& known = nodes_[edges_[out.edges.front()].to].name;
    const std::string& other = nodes_[to.nodes.front()].name;
    wrong_ = fmt::format(
        "the node \"{0}\" already sends items to \"{1}\" and was also joined with \"{2}\", "
        "expected one of them, or both as one block; example: graph.farm({{{1}, {2}}})",
        nodes_[from].name, known, other);
    return true;
}

void graph_core::connect(const graph_part& from, const graph_part& to) {
    if (!is_ours(from, "a pipeline joins") || !is_ours(to, "a pipeline joins")) return;
    for (std::size_t exit : from.exits) {
        if (!to.in || is_joined(exit, to)) return;
        nodes_[exit].out = port_to(exit, to, false);
    }
}

void graph_core::fuse(const graph_part& from, const graph_part& to) {
    if (!is_ours(from, "combine() was given") || !is_ours(to, "combine() was given")) return;
    if (from.exits.size() != 1 || to.nodes.size() != 1) {
        if (wrong_.empty())
            wrong_ = fmt::format(
                "combine() was given a block of several nodes, one of them \"{}\", expected single "
                "nodes",
                nodes_[(from.exits.size() != 1 ? from : to).nodes.front()].name);
        return;
    }
    connect(from, to);
    if (wrong_.empty()) edges_[nodes_[from.exits.front()].out.edges.front()].fused = true;
}

void graph_core::loop(const graph_part& body, std::shared_ptr<const void> again) {
    if (!is_ours(body, "feedback() was given")) return;
    const std::size_t number = loops_++;
    for (std::size_t node : body.nodes)
        nodes_[node].loops.push_back(number);
    for (std::size_t exit : body.exits) {
        graph_port port = port_to(exit, body, true);
        port.again = again;
        port.loop = number;
        nodes_[exit].back.push_back(std::move(port));
    }
}

void refuse_moved_graph() {
    throw error(errc::invalid, "this graph was moved from; use the one it was moved to");
}

graph_part graph_core::beside(const std::vector<graph_part>& parts,
                              std::shared_ptr<const routing_core> routing) {
    graph_part all;
    all.owner = this;
    if (parts.empty() && wrong_.empty())
        wrong_ = "a farm or all_to_all was given no workers, expected at least one";
    if (routing != nullptr && !parts.empty()) all.in = way_in{0, std::move(routing), {}};
    for (const graph_part& part : parts) {
        if (!is_ours(part, "a farm or all_to_all was given")) continue;
        if (all.in) all.in->parts.push_back(*part.in);
        all.exits.insert(all.exits.end(), part.exits.begin(), part.exits.end());
        all.nodes.insert(all.nodes.end(), part.nodes.begin(), part.nodes.end());
    }
    return all;
}

std::size_t graph_core::group(std::string_view name) {
    auto found = std::find(groups_.begin(), groups_.end(), name);
    if (found == groups_.end()) found = groups_.insert(groups_.end(), std::string(name));
    return static_cast<std::size_t>(found - groups_.begin());
}

void graph_core::assign(std::size_t group, const graph_part& part) {
    if (!is_ours(part, fmt::format("the group \"{}\" was given", groups_[group]))) return;
    for (std::size_t node : part.nodes)
        nodes_[node].groups.push_back(group);
}

void graph_core::place(std::string_view pool, int cpu, const graph_part& part) {
    if (!is_ours(part, fmt::format("the pool \"{}\" was given", pool))) return;
    for (std::size_t node : part.nodes) {
        graph_node& one = nodes_[node];
        if (!one.pool.empty() && one.pool != pool && wrong_.empty())
            wrong_ = fmt::format("the node \"{}\" is in the pools \"{}\" and \"{}\", expected one",
                                 one.name, one.pool, pool);
        one.pool = pool;
        one.cpu = cpu;
    }
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
        text += fmt::format("edge {} {} {} {} {} {}\n", edge.from, edge.to, edge.back, edge.fused,
                            edge.routing ? static_cast<int>(edge.routing->how) : -1,
                            edge.routing ? edge.routing->queue_items : 0);
    return fmt::format("{:016x}", fnv1a(text));
}

}  // namespace amalgam::detail
