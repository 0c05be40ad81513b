#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <amalgam/flow/detail/graph_core.hpp>
#include <amalgam/flow/run.hpp>
#include <amalgam/tasks/execution_stream.hpp>

namespace amalgam::detail {

/// Cores this process may use: fewer than the machine has when it is pinned.
std::size_t usable_cores() noexcept;

/// How many streams those of `nodes` that are in no pool get: `threads`, or as many as there are
/// nodes and cores when it is 0.
std::size_t streams_for(std::size_t threads, const graph_core& graph,
                        std::span<const std::size_t> nodes);

/// The execution streams that a run's nodes are spread over.
///
/// Owner: owns those it makes; they stop at its end, when nothing runs on them any more.
class node_streams {
public:
    /// Makes streams for nodes without a pool, too.
    node_streams(const graph_core& graph, std::span<const std::size_t> nodes,
                 const run_options& options);
    /// Nodes without a pool run on `shared`, which is borrowed.
    node_streams(const graph_core& graph, std::span<const std::size_t> nodes,
                 const run_options& options, std::vector<execution_stream*> shared);

    /// Those of a pool; of nodes without one if it has no name.
    std::span<execution_stream* const> of(const std::string& pool) const { return all_.at(pool); }

private:
    void make(const std::string& pool, std::size_t threads, const std::vector<int>& cpus);

    std::vector<std::unique_ptr<execution_stream>> owned_;
    std::map<std::string, std::vector<execution_stream*>> all_;
};

}  // namespace amalgam::detail
