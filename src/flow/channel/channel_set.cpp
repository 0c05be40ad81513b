#include "flow/channel/channel_set.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace amalgam::detail {
namespace {

template <typename Map>
const auto& edge_of(const Map& edges, std::uint32_t edge) {
    const auto found = edges.find(edge);
    if (found == edges.end())
        throw error(errc::invalid, fmt::format("edge {} does not lead to this process", edge));
    return found->second;
}

}  // namespace

channel_set::channel_set(run_context& run, on_lost lost) : run_(run) {
    const auto& edges = run_.graph.edges();
    for (std::size_t i = 0; i < edges.size(); ++i) {
        const std::size_t from = run_.graph.nodes()[edges[i].from].groups.front();
        const std::size_t to = run_.graph.nodes()[edges[i].to].groups.front();
        if (from == to) continue;
        if (from == run_.here.group)
            add_out(i, to, lost);
        else if (to == run_.here.group)
            add_in(i, from);
    }
}

void channel_set::add_out(std::size_t edge, std::size_t to_group, const on_lost& lost) {
    const graph_edge& about = run_.graph.edges()[edge];
    const bool chosen = about.routing != nullptr && !about.is_on_demand();
    const std::size_t receivers = run_.replicas_of(to_group);
    out_edge made{to_group, {}};
    for (std::size_t i = 0; i < (chosen ? receivers : 1); ++i) {
        made.channels.push_back(std::make_unique<sender>(
            run_.over, static_cast<std::uint32_t>(edge),
            static_cast<std::uint32_t>(run_.here.replica), chosen ? 1 : receivers,
            channel_limits{run_.options.batch_bytes, run_.options.window_bytes,
                           about.is_on_demand() ? about.routing->queue_items : 1},
            [lost, to_group, i](std::size_t receiver, const failure& why) {
                lost({to_group, i + receiver}, why);
            }));
        run_.nodes.attach(edge, static_cast<channel_out&>(*made.channels.back()));
    }
    out_.emplace(edge, std::move(made));
}

void channel_set::add_in(std::size_t edge, std::size_t from_group) {
    const graph_edge& about = run_.graph.edges()[edge];
    // On-demand senders get credit for each consumed batch.
    const bool on_demand = about.is_on_demand();
    auto made = std::make_unique<receiver>(
        run_.replicas_of(from_group),
        receiver::limits{.window_bytes = run_.options.window_bytes,
                         .starving_items = on_demand ? about.routing->queue_items : 1,
                         .tells_at_once = on_demand,
                         .takes_marks = run_.takes_marks},
        about.back);
    run_.nodes.attach(edge, static_cast<channel_in&>(*made));
    in_.emplace(edge, in_edge{from_group, std::move(made), loop_of_way_back(edge)});
}

const loop_count* channel_set::loop_of_way_back(std::size_t edge) const {
    const graph_core& graph = run_.graph;
    for (const graph_port& port : graph.nodes()[graph.edges()[edge].from].back)
        if (std::find(port.edges.begin(), port.edges.end(), edge) != port.edges.end())
            return &run_.nodes.loop(port.loop);
    return nullptr;
}

const channel_set::out_edge& channel_set::out(std::uint32_t edge) const {
    return edge_of(out_, edge);
}
const channel_set::in_edge& channel_set::in(std::uint32_t edge) const {
    return edge_of(in_, edge);
}

std::vector<std::size_t> channel_set::groups(bool that_send_to_us) const {
    std::vector<std::size_t> found;
    const auto add = [&found](std::size_t group) {
        if (std::find(found.begin(), found.end(), group) == found.end()) found.push_back(group);
    };
    if (that_send_to_us) {
        for (const auto& [edge, in] : in_)
            add(in.from_group);
    } else {
        for (const auto& [edge, out] : out_)
            add(out.to_group);
    }
    return found;
}

void channel_set::connect(process_id receiver, const peer& at) {
    for (auto& [edge, out] : out_)
        if (out.to_group == receiver.group)
            out.to(receiver.replica).connect(out.number(receiver.replica), at);
}

bool channel_set::is_open(process_id who, bool sends_to_us) const {
    if (sends_to_us)
        return std::any_of(in_.begin(), in_.end(), [who](const auto& in) {
            return in.second.from_group == who.group && in.second.channel->is_open(who.replica);
        });
    return std::any_of(out_.begin(), out_.end(), [who](const auto& out) {
        return out.second.to_group == who.group &&
               out.second.to(who.replica).is_open(out.second.number(who.replica));
    });
}

bool channel_set::has_unconsumed(process_id receiver) const {
    return std::any_of(out_.begin(), out_.end(), [receiver](const auto& out) {
        return out.second.to_group == receiver.group &&
               !out.second.to(receiver.replica).has_ended(out.second.number(receiver.replica));
    });
}

void channel_set::stop() {
    for (auto& [edge, out] : out_)
        for (auto& channel : out.channels)
            channel->stop();
    for (auto& [edge, in] : in_)
        in.channel->stop();
}

}  // namespace amalgam::detail
