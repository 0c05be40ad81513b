#include "flow/part.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <amalgam/tasks/ult.hpp>

namespace amalgam::detail {
namespace {

/// Which of `streams` the i-th of `nodes` runs on. Neighbours share a stream only when there
/// are many nodes: then a hop within a stream is worth more than even load.
std::size_t stream_of(std::size_t i, std::size_t nodes, std::size_t streams) noexcept {
    return nodes > 4 * streams ? i * streams / nodes : i % streams;
}

}  // namespace

struct part::running_node {
    std::size_t index;
    execution_stream* stream;
    node_ends ends;
    ult task;
};

part::part(graph_core& graph, std::vector<std::size_t> nodes, place where,
           std::span<execution_stream* const> streams, const run_options& options)
    : graph_(graph), where_(std::move(where)), left_(nodes.size()) {
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        auto one = std::make_unique<running_node>();
        one->index = nodes[i];
        one->stream = streams[stream_of(i, nodes.size(), streams.size())];
        nodes_.push_back(std::move(one));
    }
    auto is_here = [&nodes](std::size_t node) {
        return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
    };
    for (const graph_edge& edge : graph.edges()) {
        if (!is_here(edge.from) || !is_here(edge.to)) continue;
        running_node& from = running(edge.from);
        running_node& to = running(edge.to);
        auto made =
            graph.nodes()[edge.from].body->make_ring(options.queue_items, from.stream != to.stream);
        from.ends.out_here = made.get();
        to.ends.in_here = made.get();
        rings_.push_back(std::move(made));
    }
}

part::~part() {
    for (auto& node : nodes_)
        if (node->task.joinable()) node->task.join();
}

part::running_node& part::running(std::size_t node) {
    return **std::find_if(nodes_.begin(), nodes_.end(),
                          [node](const auto& one) { return one->index == node; });
}

void part::attach(std::size_t edge, channel_in& from) {
    running(graph_.edges()[edge].to).ends.in_there = &from;
}

void part::attach(std::size_t edge, channel_out& to) {
    running(graph_.edges()[edge].from).ends.out_there = &to;
}

void part::start() {
    for (auto& node : nodes_) {
        running_node& one = *node;
        one.task = spawn(*one.stream, [this, &one] { run_one(one); },
                         {.name = graph_.nodes()[one.index].name});
    }
}

void part::run_one(running_node& node) noexcept {
    const graph_node& about = graph_.nodes()[node.index];
    try {
        about.body->run(where_, node.ends);
        if (node.ends.out_here != nullptr) node.ends.out_here->close();
        if (node.ends.out_there != nullptr) node.ends.out_there->finish();
    } catch (const std::exception& thrown) {
        // While the run is being stopped, what a node throws is only how it unwinds.
        fail({{{errc::handler_failed},
               fmt::format("the node \"{}\" failed: {}", about.name, thrown.what())}});
    } catch (...) {
        fail({{{errc::handler_failed},
               fmt::format("the node \"{}\" failed: it threw something that is no std::exception",
                           about.name)}});
    }
    if (node.ends.in_there != nullptr) node.ends.in_there->release();
    if (left_.fetch_sub(1) == 1) ended_.set();
}

void part::fail(run_failure why) noexcept {
    {
        std::lock_guard hold(failure_lock_);
        if (failure_) return;
        if (tell_) tell_(why);
        failure_ = std::move(why);
    }
    for (auto& ring : rings_)
        ring->stop();
    if (stop_channels_) stop_channels_();
}

std::optional<run_failure> part::failed() const {
    std::lock_guard hold(failure_lock_);
    return failure_;
}

}  // namespace amalgam::detail
