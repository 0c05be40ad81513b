#include "flow/nodes/local_nodes.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/detail/in_words.hpp>
#include <amalgam/tasks/ult.hpp>

namespace amalgam::detail {
namespace {

/// Stream of the i-th of `nodes`. Neighbors share a stream only when there are many nodes: then
/// hops within a stream matter more than even load.
std::size_t stream_of(std::size_t i, std::size_t nodes, std::size_t streams) noexcept {
    return nodes > 4 * streams ? i * streams / nodes : i % streams;
}

/// Whether the sender picks the least busy receiver.
bool demands(const branch& of) noexcept {
    return (of.routing != nullptr && of.routing->how == spread::on_demand) ||
           std::any_of(of.parts.begin(), of.parts.end(), demands);
}

}  // namespace

local_nodes::local_nodes(graph_core& graph, std::vector<std::size_t> nodes, place where,
                         const node_streams& streams, const run_options& options)
    : graph_(graph), where_(std::move(where)), left_(0) {
    for (std::size_t i = 0; i < graph.loops(); ++i)
        loops_.push_back(std::make_unique<loop_count>());
    for (const std::size_t node : nodes) {
        auto one = std::make_unique<running_node>();
        one->index = node;
        nodes_.push_back(std::move(one));
    }
    for (const graph_edge& edge : graph.edges())
        if (edge.fused && is_here(edge.to)) running(edge.to).is_fused = true;
    choose_streams(streams);
    for (auto& one : nodes_) {
        if (!one->is_fused) continue;
        running_node& host = host_of(one->index);
        one->stream = host.stream;
        host.fused.push_back(one.get());
    }
    for (std::size_t edge = 0; edge < graph.edges().size(); ++edge)
        if (is_here(graph.edges()[edge].from) && is_here(graph.edges()[edge].to))
            join_here(edge, options);
}

/// For nodes with their own ULT.
void local_nodes::choose_streams(const node_streams& streams) {
    std::map<std::string, std::vector<running_node*>> by_pool;
    for (auto& one : nodes_) {
        if (one->is_fused) continue;
        by_pool[graph_.nodes()[one->index].pool].push_back(one.get());
        ++left_;
    }
    for (const auto& [pool, nodes] : by_pool) {
        const std::span<execution_stream* const> there = streams.of(pool);
        for (std::size_t i = 0; i < nodes.size(); ++i)
            nodes[i]->stream = there[stream_of(i, nodes.size(), there.size())];
    }
}

bool local_nodes::is_here(std::size_t node) const {
    return std::any_of(nodes_.begin(), nodes_.end(),
                       [node](const auto& one) { return one->index == node; });
}

/// The node whose ULT runs this one.
local_nodes::running_node& local_nodes::host_of(std::size_t node) const {
    running_node* at = &running(node);
    while (at->is_fused)
        at = &running(graph_.edges()[graph_.nodes()[at->index].in.front()].from);
    return *at;
}

void local_nodes::join_here(std::size_t number, const run_options& options) {
    const graph_edge& edge = graph_.edges()[number];
    running_node& from = running(edge.from);
    running_node& to = running(edge.to);
    const graph_node& sender = graph_.nodes()[edge.from];
    taker made;
    if (edge.fused) {
        made.inside = graph_.nodes()[edge.to].body.get();
        made.inside_ends = &to.ends;
    } else {
        rings_.push_back(sender.body->make_ring(
            edge.is_on_demand() ? edge.routing->queue_items : options.queue_items,
            from.stream != to.stream, edge.back));
        made.here = rings_.back().get();
        to.in[number].here = made.here;
        made.here->count_waits(host_of(edge.from).ends.waits_for_output, to.ends.waits_for_input);
    }
    from.out[number].push_back(made);
}

local_nodes::~local_nodes() {
    for (auto& node : nodes_)
        if (node->task.joinable()) node->task.join();
}

local_nodes::running_node& local_nodes::running(std::size_t node) const {
    return **std::find_if(nodes_.begin(), nodes_.end(),
                          [node](const auto& one) { return one->index == node; });
}

void local_nodes::attach(std::size_t edge, channel_in& from) {
    running_node& to = running(graph_.edges()[edge].to);
    to.in[edge].there = &from;
    from.count_waits(to.ends.waits_for_input);
}

void local_nodes::attach(std::size_t edge, channel_out& to) {
    taker made;
    made.there = &to;
    const std::size_t from = graph_.edges()[edge].from;
    running(from).out[edge].push_back(made);
    to.count_waits(host_of(from).ends.waits_for_output);
}

branch local_nodes::branch_of(running_node& node, const way_in& to) const {
    branch made;
    made.routing = to.routing.get();
    for (const way_in& each : to.parts) {
        branch next = branch_of(node, each);
        // If one worker per item is chosen, the processes of a group count as that many workers.
        const bool are_several = next.routing == made.routing && each.routing == nullptr;
        if (!are_several)
            made.parts.push_back(std::move(next));
        else
            std::move(next.parts.begin(), next.parts.end(), std::back_inserter(made.parts));
    }
    if (to.routing != nullptr) return made;
    const std::vector<taker>& takers = node.out[to.number];
    if (takers.size() == 1) {
        made.to = takers.front();
        return made;
    }
    made.routing = graph_.edges()[to.number].routing.get();
    for (const taker& one : takers) {
        branch& process = made.parts.emplace_back();
        process.to = one;
    }
    return made;
}

port_ends local_nodes::ends_of(running_node& node, const graph_port& port) {
    port_ends ends;
    ends.root = branch_of(node, port.to);
    ends.again = port.again.get();
    if (port.again) ends.back_in = loops_[port.loop].get();
    if (port.edges.empty() || graph_.edges()[port.edges.front()].fused) return ends;
    // All edges of a port lead to one block, whose nodes are in the same loops.
    const graph_edge& edge = graph_.edges()[port.edges.front()];
    const std::vector<std::size_t>& there = graph_.nodes()[edge.to].loops;
    for (const std::size_t loop : graph_.nodes()[edge.from].loops)
        if (std::find(there.begin(), there.end(), loop) != there.end())
            ends.within.push_back(loops_[loop].get());
    return ends;
}

/// Completes the node's inputs and outputs once all edges are connected.
void local_nodes::wire(running_node& node) {
    const graph_node& about = graph_.nodes()[node.index];
    node_ends& ends = node.ends;
    if (!node.is_fused) {
        ends.ended_inputs.assign(about.in.size(), 0);
        if (ends.restored != nullptr) ends.ended_inputs = ends.restored->ended_inputs;
        for (const std::size_t loop : about.loops)
            ends.loops.push_back(loops_[loop].get());
        for (const std::size_t number : about.in) {
            inlet& in = ends.in.emplace_back(node.in[number]);
            const graph_edge& edge = graph_.edges()[number];
            const std::vector<std::size_t>& before = graph_.nodes()[edge.from].loops;
            for (const std::size_t loop : about.loops)
                if (std::find(before.begin(), before.end(), loop) == before.end())
                    in.entered.push_back(loops_[loop].get());
            if (edge.back) {
                for (const graph_port& port : graph_.nodes()[edge.from].back)
                    if (std::find(port.edges.begin(), port.edges.end(), number) != port.edges.end())
                        in.back_in = loops_[port.loop].get();
                in.back_in->tell(ends.in_bell);
            }
            for (loop_count* each : in.entered)
                each->add();
        }
        if (about.in.empty())  // A source within a loop is an entry to it.
            for (loop_count* each : ends.loops)
                each->add();
    }
    running_node& host = host_of(node.index);
    ends.in_bell.count_waits(ends.waits_for_input);
    ends.out_bell.count_waits(host.ends.waits_for_output);
    const bool waits_for_several = ends.in.size() > 1 || !ends.loops.empty();
    for (const inlet& in : ends.in) {
        if (!waits_for_several) continue;
        if (in.here != nullptr) in.here->share_consumer_bell(ends.in_bell);
        if (in.there != nullptr) in.there->share_bell(ends.in_bell);
    }
    ends.out = ends_of(node, about.out);
    for (const graph_port& port : about.back)
        ends.back.push_back(ends_of(node, port));
    const bool any_demands = demands(ends.out.root);
    for (const std::size_t edge : about.out.edges) {
        for (const taker& to : node.out[edge]) {
            if (!any_demands) continue;
            if (to.here != nullptr) to.here->share_producer_bell(ends.out_bell);
            if (to.there != nullptr) to.there->share_bell(ends.out_bell);
        }
    }
}

void local_nodes::start() {
    for (auto& node : nodes_)
        wire(*node);
    start_time_ = std::chrono::steady_clock::now();
    start_ticks_ = cycles();
    start_processor_seconds_ = processor_seconds();
    started_.store(true);
    for (auto& node : nodes_) {
        running_node& one = *node;
        if (one.is_fused) continue;
        one.task = spawn(*one.stream, [this, &one] { run_one(one); },
                         {.name = graph_.nodes()[one.index].name});
    }
    spawned_.store(true);
}

/// Tells all receivers that the node has ended; or waits until remote ones are done.
void local_nodes::end_outputs(running_node& node, bool wait) {
    for (const auto& [edge, takers] : node.out) {
        for (const taker& to : takers) {
            if (to.there != nullptr) wait ? to.there->wait_ended() : to.there->end();
            if (to.here != nullptr && !wait) to.here->close();
        }
    }
    for (running_node* each : node.fused)
        end_outputs(*each, wait);
}

/// nullptr: it does not go on from a checkpoint.
const node_record* local_nodes::record_of(const running_node& node) const {
    if (!restored_) return nullptr;
    const graph_node& about = graph_.nodes()[node.index];
    const auto found =
        std::find_if(restored_->begin(), restored_->end(),
                     [&about](const node_record& each) { return each.name == about.name; });
    if (found == restored_->end()) throw_bad_state(about.name, "it is not there");
    if (found->ended_inputs.size() != (node.is_fused ? 0 : about.in.size()))
        throw_bad_state(about.name, "it has other inputs");
    return &*found;
}

void local_nodes::take_part_in_checkpoints(snapshot& into,
                                           std::optional<std::vector<node_record>> restored) {
    saved_ = &into;
    restored_ = std::move(restored);
    std::size_t number = 0;
    for (auto& node : nodes_) {
        node->ends.restored = record_of(*node);
        if (node->is_fused) continue;
        node->number = number++;
        node->marks = std::make_unique<own_marks>(*this, *node);
        node->ends.marks = node->marks.get();
    }
}

void local_nodes::begin_checkpoint(std::uint64_t number) {
    saved_->begin(number);
    for (auto& node : nodes_)
        if (node->marks) node->marks->ask(number);  // Those with inputs wait for theirs.
}

/// Sends the mark to all receivers.
void local_nodes::mark_outputs(running_node& node, std::uint64_t number) {
    for (const auto& [edge, takers] : node.out) {
        for (const taker& to : takers) {
            if (to.here != nullptr) to.here->mark(number);
            if (to.there != nullptr) to.there->mark(number);
        }
    }
    for (running_node* each : node.fused)
        mark_outputs(*each, number);
}

/// Of a node that had ended when it was saved, and so had all that send to it: they end once more,
/// and those in other processes take this one for lost if it is not there.
void local_nodes::take_ends(running_node& node) {
    for (const inlet& in : node.ends.in) {
        channel_in::batch none;
        while (in.there != nullptr && in.there->next(none)) {
        }
    }
}

/// Runs in the node's ULT, between two items.
void local_nodes::save(running_node& node, std::uint64_t number) {
    std::vector<node_record> records;
    add_records(node, false, records);
    mark_outputs(node, number);
    // Last: when all have saved, the next checkpoint may begin, so the marks must be under way.
    saved_->add(number, node.number, std::move(records));
}

/// Before its outputs end: who has come to their end has all that this node has sent.
void local_nodes::save_ended(running_node& node) {
    if (failed()) return;  // It has been ended early.
    std::vector<node_record> records;
    add_records(node, true, records);
    saved_->add_last(node.number, std::move(records));
}

/// The node's, and those of the nodes inside it.
void local_nodes::add_records(const running_node& node, bool ended,
                              std::vector<node_record>& to) const {
    const graph_node& about = graph_.nodes()[node.index];
    const bool is_restored = node.ends.restored != nullptr && node.ends.restored->ended;
    if (is_restored)
        to.push_back(*node.ends.restored);
    else
        to.push_back({about.name, ended, node.ends.ended_inputs, about.body->save()});
    for (const running_node* each : node.fused)
        add_records(*each, ended, to);
}

void local_nodes::run_one(running_node& node) noexcept {
    const graph_node& about = graph_.nodes()[node.index];
    node.thread.store(::gettid());
    node.started.store(cycles());
    try {
        const bool is_over = node.ends.restored != nullptr && node.ends.restored->ended;
        if (!is_over)
            about.body->run(where_, node.ends);
        else
            take_ends(node);
        if (saved_ != nullptr) save_ended(node);
        if (about.in.empty())
            for (loop_count* each : node.ends.loops)
                each->take_away();
        end_outputs(node, false);
        node.ended.store(cycles());  // Only others have work left.
        end_outputs(node, true);
        // A loop ends before its senders know: until then they would take this process for lost.
        for (const inlet& in : node.ends.in) {
            channel_in::batch none;
            if (in.there != nullptr) in.there->count_waits(node.waits_after_end);
            while (in.there != nullptr && in.back_in != nullptr && in.there->next(none)) {
            }
        }
    } catch (const std::exception& thrown) {
        // During a stop, exceptions of a node are only its unwinding.
        fail({{{errc::handler_failed},
               fmt::format("the node \"{}\" failed: {}", about.name, text_of(thrown))}});
    } catch (...) {
        fail({{{errc::handler_failed},
               fmt::format(
                   "the node \"{}\" failed: it threw an exception not derived from std::exception",
                   about.name)}});
    }
    if (node.ended.load() == 0) node.ended.store(cycles());
    for (const inlet& in : node.ends.in)
        if (in.there != nullptr) in.there->release();
    if (left_.fetch_sub(1) == 1) ended_.set();
}

void local_nodes::fail(run_failure why) noexcept {
    {
        std::lock_guard hold(failure_lock_);
        if (failure_) return;
        if (tell_) tell_(why);
        failure_ = std::move(why);
    }
    for (auto& ring : rings_)
        ring->stop();
    for (auto& node : nodes_)
        graph_.nodes()[node->index].body->stop();
    if (stop_channels_) stop_channels_();
}

std::optional<run_failure> local_nodes::failed() const {
    std::lock_guard hold(failure_lock_);
    return failure_;
}

}  // namespace amalgam::detail
