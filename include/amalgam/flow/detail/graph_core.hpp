#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/result.hpp>
#include <amalgam/flow/config.hpp>

namespace amalgam::detail {

class node_body;

/// A node of a graph, whatever its types.
struct graph_node {
    std::string name;
    std::unique_ptr<node_body> body;
    std::vector<std::size_t> in;   ///< Edges that lead here.
    std::vector<std::size_t> out;  ///< Edges that lead away.
    std::vector<std::size_t> groups;
};

struct graph_edge {
    std::size_t from = 0;
    std::size_t to = 0;
};

/// A graph without its types: what is joined to what, and which group has it.
class graph_core {
public:
    graph_core();
    ~graph_core();

    std::size_t add(std::string name, std::unique_ptr<node_body> body);
    void connect(const graph_core& from_owner, std::size_t from, const graph_core& to_owner,
                 std::size_t to);
    std::size_t group(std::string_view name);
    void assign(std::size_t group, const graph_core& owner, const std::vector<std::size_t>& nodes);

    const std::vector<graph_node>& nodes() const noexcept { return nodes_; }
    const std::vector<graph_edge>& edges() const noexcept { return edges_; }
    const std::vector<std::string>& group_names() const noexcept { return groups_; }

    /// Whether the graph can run: by itself, and, when `config` is given, spread over its groups.
    /// Failure: `invalid`, with one sentence that names the node or group and what to write.
    status check(const flow_config* config, std::string& sentence) const;

    /// The same for graphs that were built alike, in whichever process.
    std::string fingerprint() const;

private:
    std::string find_fault(const flow_config* config) const;
    std::string fault_of_node(const graph_node& node) const;
    std::string fault_of_cycle() const;
    std::string fault_of_groups(const flow_config* config) const;
    std::string fault_of_cut(const graph_edge& edge) const;

    std::vector<graph_node> nodes_;
    std::vector<graph_edge> edges_;
    std::vector<std::string> groups_;
    std::string foreign_;  // The first mistake that cannot even be recorded.
};

}  // namespace amalgam::detail
