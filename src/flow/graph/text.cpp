#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <amalgam/flow/detail/graph_core.hpp>
#include <amalgam/flow/detail/node_body.hpp>

// Text forms of a graph, for people and programs.

namespace amalgam::detail {
namespace {

std::string name_of(const routing_core& routing) {
    switch (routing.how) {
        case spread::on_demand:
            return fmt::format("on demand ({})", routing.queue_items);
        case spread::broadcast:
            return "broadcast";
        case spread::chosen:
            return "by key or function";
        case spread::round_robin:
            break;
    }
    return "round robin";
}

std::string in_quotes(std::string_view text) {
    std::string made = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') made += '\\';
        made += c;
    }
    return made + '"';
}

}  // namespace

std::string graph_core::dot() const {
    std::string text = "digraph flow {\n  rankdir=LR;\n  node [shape=box];\n";
    const auto put_node = [&](std::size_t i, const char* indent) {
        text += fmt::format("{}n{} [label={}];\n", indent, i, in_quotes(nodes_[i].name));
    };
    for (std::size_t g = 0; g < groups_.size(); ++g) {
        text += fmt::format("  subgraph cluster_{} {{\n    label={};\n", g, in_quotes(groups_[g]));
        for (std::size_t i = 0; i < nodes_.size(); ++i)
            if (!nodes_[i].groups.empty() && nodes_[i].groups.front() == g) put_node(i, "    ");
        text += "  }\n";
    }
    for (std::size_t i = 0; i < nodes_.size(); ++i)
        if (nodes_[i].groups.empty()) put_node(i, "  ");
    for (const graph_edge& edge : edges_) {
        std::string looks;
        const auto add = [&](const std::string& more) {
            looks += (looks.empty() ? "" : ", ") + more;
        };
        if (edge.routing != nullptr) add("label=" + in_quotes(name_of(*edge.routing)));
        if (edge.back) add("style=dashed, constraint=false");
        if (edge.fused) add("arrowhead=none, penwidth=3");
        if (nodes_[edge.from].groups != nodes_[edge.to].groups) add("color=blue");
        text += fmt::format("  n{} -> n{}{};\n", edge.from, edge.to,
                            looks.empty() ? "" : " [" + looks + "]");
    }
    return text + "}\n";
}

std::string graph_core::json() const {
    nlohmann::ordered_json all;
    all["nodes"] = nlohmann::ordered_json::array();
    all["edges"] = nlohmann::ordered_json::array();
    for (const graph_node& node : nodes_) {
        nlohmann::ordered_json one{{"name", node.name}};
        if (!node.body->takes().empty()) one["takes"] = node.body->takes();
        if (!node.body->gives().empty()) one["gives"] = node.body->gives();
        if (!node.groups.empty()) one["group"] = groups_[node.groups.front()];
        all["nodes"].push_back(std::move(one));
    }
    for (const graph_edge& edge : edges_) {
        nlohmann::ordered_json one{{"from", nodes_[edge.from].name}, {"to", nodes_[edge.to].name}};
        if (edge.routing != nullptr) one["routing"] = name_of(*edge.routing);
        if (edge.back) one["back"] = true;
        if (edge.fused) one["combined"] = true;
        one["between_groups"] = nodes_[edge.from].groups != nodes_[edge.to].groups;
        all["edges"].push_back(std::move(one));
    }
    return all.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace amalgam::detail
