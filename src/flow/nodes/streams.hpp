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

/// Cores this process may use: fewer than the machine has if it is pinned.
std::size_t usable_cores() noexcept;

/// Number of streams for those of `nodes` without a pool: `threads`, or if that is 0 one per node,
/// up to the number of cores.
std::size_t streams_for(std::size_t threads, const graph_core& graph,
                        std::span<const std::size_t> nodes);

/// The execution streams that run the nodes of a run.
///
/// Owner:   owns the streams it creates; the destructor stops them once nothing runs on them.
class node_streams {
public:
    /// Creates streams for nodes without a pool, too.
    node_streams(const graph_core& graph, std::span<const std::size_t> nodes,
                 const run_options& options);
    /// Nodes without a pool run on `shared`, which is borrowed.
    node_streams(const graph_core& graph, std::span<const std::size_t> nodes,
                 const run_options& options, std::vector<execution_stream*> shared);

    /// Streams of a pool; an empty name means nodes without one.
    std::span<execution_stream* const> of(const std::string& pool) const { return all_.at(pool); }

private:
    void make(const std::string& pool, std::size_t threads, const std::vector<int>& cpus);

    std::vector<std::unique_ptr<execution_stream>> owned_;
    std::map<std::string, std::vector<execution_stream*>> all_;
};

}  // namespace amalgam::detail
