#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <amalgam/core/result.hpp>
#include <amalgam/flow/config.hpp>
#include <amalgam/flow/routing.hpp>

namespace amalgam::detail {

class node_body;

/// That may wait between two nodes.
inline constexpr std::size_t most_queue_items = std::size_t{1} << 32;

/// Who takes what a block takes: a node, or one of several parts, as `routing` says.
struct way_in {
    std::size_t number = 0;                       ///< Of the node; in a port, of the edge to it.
    std::shared_ptr<const routing_core> routing;  ///< nullptr: it is a node.
    std::vector<way_in> parts;
};

/// Calls `visit(node, how)` for each node, where `how` spreads items over it and its like.
template <typename Way, typename Visit>
void for_each_node(Way& way, Visit&& visit, std::shared_ptr<const routing_core> how = nullptr) {
    if (way.routing == nullptr) return visit(way, how);
    for (auto& part : way.parts)
        for_each_node(part, visit, way.routing);
}

struct graph_edge {
    std::size_t from = 0;
    std::size_t to = 0;
    std::shared_ptr<const routing_core> routing;  ///< Over this edge and its like; or nullptr.
    bool back = false;                            ///< To the start of a loop.
    bool fused = false;                           ///< Its end runs inside of its start.

    bool is_on_demand() const noexcept {
        return routing != nullptr && routing->how == spread::on_demand;
    }
};

/// What a node sends to as one: the next block.
struct graph_port {
    std::vector<std::size_t> edges;
    way_in to;  ///< With the numbers of these edges.
    /// For a way back: which items go there, a std::function<bool(const Out&)>; and its loop.
    std::shared_ptr<const void> again;
    std::size_t loop = 0;
};

/// A node of a graph, whatever its types.
struct graph_node {
    std::string name;
    std::unique_ptr<node_body> body;
    std::vector<std::size_t> in;   ///< Edges that lead here.
    graph_port out;                ///< Edges that lead away.
    std::vector<graph_port> back;  ///< Edges that lead back, the innermost loop's first.
    std::vector<std::size_t> loops;
    std::vector<std::size_t> groups;
    std::string pool;  ///< Of threads; empty: those of the run.
    int cpu = -1;      ///< Where its pool's one thread is bound to, if it is the core's own.
};

/// Parts of a graph: some of its nodes, by number.
struct graph_part {
    const class graph_core* owner = nullptr;
    std::optional<way_in> in;        ///< Nothing: they are sources.
    std::vector<std::size_t> exits;  ///< Those that give what the part gives.
    std::vector<std::size_t> nodes;  ///< All of them.
};

/// Failure: throws error{invalid}.
[[noreturn]] void refuse_moved_graph();

/// `first` with `second` behind it.
graph_part after(const graph_part& first, const graph_part& second);

/// The nodes of an ordered farm.
struct ordered_nodes {
    std::size_t emitter = 0;
    std::vector<std::size_t> workers;
    std::size_t collector = 0;
};

/// A graph without its types: what is joined to what, and which group has it.
class graph_core {
public:
    graph_core();
    ~graph_core();

    std::size_t add(std::string_view name, std::unique_ptr<node_body> body);
    /// Every exit of `from` sends to `to`.
    void connect(const graph_part& from, const graph_part& to);
    /// The exit of `from` calls the entry of `to`: both are nodes.
    void fuse(const graph_part& from, const graph_part& to);
    /// Items of which `again` (a std::function<bool(const Out&)>) says so go from the exits back
    /// to the start.
    void loop(const graph_part& body, std::shared_ptr<const void> again);
    /// These number items and sort them: a node that does must be one for all items.
    void keep_order(ordered_nodes farm) { ordered_.push_back(std::move(farm)); }
    /// Side by side; `routing` chooses one, if they are no sources.
    graph_part beside(const std::vector<graph_part>& parts,
                      std::shared_ptr<const routing_core> routing);
    std::size_t group(std::string_view name);
    void assign(std::size_t group, const graph_part& part);
    /// Its nodes run on the threads of that pool; with a `cpu` on the one that is bound to it.
    void place(std::string_view pool, int cpu, const graph_part& part);

    const std::vector<graph_node>& nodes() const noexcept { return nodes_; }
    const std::vector<graph_edge>& edges() const noexcept { return edges_; }
    const std::vector<std::string>& group_names() const noexcept { return groups_; }
    std::size_t loops() const noexcept { return loops_; }

    /// Whether the graph can run: by itself, and, when `config` is given, spread over its groups.
    /// Failure: `invalid`, with one sentence that names the node or group and what to write.
    status check(const flow_config* config, std::string& sentence) const;

    /// A run begins: false while another one has not ended. Any thread.
    bool begin_use() noexcept { return !in_use_.exchange(true); }
    void end_use() noexcept { in_use_.store(false); }

    // See graph. In graph_text.cpp.
    std::string dot() const;
    std::string json() const;

    /// The same for graphs that were built alike, in whichever process.
    std::string fingerprint() const;

private:
    bool is_ours(const graph_part& part, std::string_view what);
    graph_port port_to(std::size_t from, const graph_part& to, bool back);
    bool is_joined(std::size_t from, const graph_part& to);
    std::string find_fault(const flow_config* config) const;
    std::string fault_of_node(const graph_node& node) const;
    std::string fault_of_cycle() const;
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
    std::string wrong_;  // The first mistake that cannot even be recorded.
};

}  // namespace amalgam::detail
