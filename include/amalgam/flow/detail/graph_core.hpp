#pragma once

#include <atomic>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <amalgam/core/detail/memory.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/flow/config.hpp>
#include <amalgam/flow/routing.hpp>

namespace amalgam::detail {

class node_body;

/// Maximum queue capacity between two nodes.
inline constexpr std::size_t most_queue_items = std::size_t{1} << 32;

/// The entry of a block: a node, or several parts among which `routing` chooses.
struct way_in {
    std::size_t number = 0;  ///< Node number; in a port, the number of the edge to it.
    std::shared_ptr<const routing_core> routing;  ///< nullptr: a single node.
    std::vector<way_in> parts;
};

/// Calls `visit(node, how)` for each node; `how` is the routing over it and its siblings.
template <typename Way, typename Visit>
void for_each_node(Way& way, Visit&& visit, std::shared_ptr<const routing_core> how = nullptr) {
    if (way.routing == nullptr) return visit(way, how);
    for (auto& part : way.parts)
        for_each_node(part, visit, way.routing);
}

struct graph_edge {
    std::size_t from = 0;
    std::size_t to = 0;
    std::shared_ptr<const routing_core> routing;  ///< Over this edge and its siblings; or nullptr.
    bool back = false;                            ///< A feedback edge.
    bool fused = false;  ///< The receiving node runs inside the sending one.

    bool is_on_demand() const noexcept {
        return routing != nullptr && routing->how == spread::on_demand;
    }
};

/// A single destination of a node's output: the next block.
struct graph_port {
    std::vector<std::size_t> edges;
    way_in to;  ///< Contains these edges' numbers.
    /// For feedback: which items go back, a std::function<bool(const Out&)>, and the loop.
    std::shared_ptr<const void> again;
    std::size_t loop = 0;
};

/// A node of a graph, type-erased.
struct graph_node {
    std::string name;
    std::unique_ptr<node_body> body;
    std::vector<std::size_t> in;   ///< Incoming edges.
    graph_port out;                ///< Outgoing edges.
    std::vector<graph_port> back;  ///< Feedback edges, the innermost loop's first.
    std::vector<std::size_t> loops;
    std::vector<std::size_t> groups;
    std::string pool;  ///< Thread pool; empty: the run's threads.
    int cpu = -1;      ///< Core its pool's only thread is bound to, if it is a pinned node.
};

/// A part of a graph: some of its nodes, by number.
struct graph_part {
    const class graph_core* owner = nullptr;
    std::optional<way_in> in;        ///< Empty: they are sources.
    std::vector<std::size_t> exits;  ///< Nodes that produce the part's output.
    std::vector<std::size_t> nodes;  ///< All nodes.
};

/// Failure: throws error{invalid}.
[[noreturn]] void refuse_moved_graph();

/// `first` followed by `second`.
graph_part after(const graph_part& first, const graph_part& second);

/// The nodes of an ordered farm.
struct ordered_nodes {
    std::size_t emitter = 0;
    std::vector<std::size_t> workers;
    std::size_t collector = 0;
};

/// A graph, type-erased: its edges, and the groups of its nodes.
class graph_core {
public:
    graph_core();
    ~graph_core();

    std::size_t add(std::string_view name, std::unique_ptr<node_body> body);
    /// Connects every exit of `from` to `to`.
    void connect(const graph_part& from, const graph_part& to);
    /// Makes the exit of `from` call the entry of `to`; both are nodes.
    void fuse(const graph_part& from, const graph_part& to);
    /// Sends items for which `again` (a std::function<bool(const Out&)>) is true from the exits
    /// back to the start.
    void loop(const graph_part& body, std::shared_ptr<const void> again);
    /// Registers an ordered farm: its numbering and sorting nodes must each be a single node for
    /// all items.
    void keep_order(ordered_nodes farm) { ordered_.push_back(std::move(farm)); }
    /// Puts parts in parallel; `routing` chooses among them, unless they are sources.
    graph_part beside(const std::vector<graph_part>& parts,
                      std::shared_ptr<const routing_core> routing);
    std::size_t group(std::string_view name);
    void assign(std::size_t group, const graph_part& part);
    /// Runs the nodes on that pool's threads; with a `cpu`, on the thread bound to it.
    void place(std::string_view pool, int cpu, const graph_part& part);

    const std::vector<graph_node>& nodes() const noexcept { return nodes_; }
    const std::vector<graph_edge>& edges() const noexcept { return edges_; }
    const std::vector<std::string>& group_names() const noexcept { return groups_; }
    std::size_t loops() const noexcept { return loops_; }

    /// Checks whether the graph can run, and, if `config` is given, be spread over its groups.
    /// Failure: `invalid`, with one sentence that names the node or group and what to write.
    status check(const flow_config* config, std::string& sentence) const;

    /// Checks whether checkpoints can be taken of the graph.
    /// Failure: `unsupported`, with one sentence that names the node and what to write.
    status check_checkpoints(std::string& sentence) const;

    /// Begins a run; false while another one has not ended. Any thread.
    bool begin_use() noexcept { return !in_use_.exchange(true); }
    void end_use() noexcept { in_use_.store(false); }

    // See graph. In graph/text.cpp.
    std::string dot() const;
    std::string json() const;

    /// Equal for graphs built the same way, in any process.
    std::string fingerprint() const;

private:
    bool is_ours(const graph_part& part, std::string_view what);
    graph_port port_to(std::size_t from, const graph_part& to, bool back);
    bool is_joined(std::size_t from, const graph_part& to);
    std::string find_fault(const flow_config* config) const;
    std::string fault_of_node(const graph_node& node) const;
    std::string fault_of_cycle() const;
    std::string fault_of_checkpoints() const;
    std::string fault_of_edge(const graph_edge& edge) const;
    std::string fault_of_groups(const flow_config* config) const;
    std::string fault_of_cut(const graph_edge& edge) const;
    std::string fault_of_choice(const graph_edge& edge, const flow_config& config) const;
    std::string fault_of_order(const ordered_nodes& farm, const flow_config& config) const;

    std::vector<graph_node> nodes_;
    std::vector<graph_edge> edges_;
    std::vector<std::string> groups_;
    std::vector<ordered_nodes> ordered_;
    std::size_t loops_ = 0;
    std::atomic<bool> in_use_{false};
    std::string wrong_;  // The first mistake that cannot be represented in the graph.
};

}  // namespace amalgam::detail
