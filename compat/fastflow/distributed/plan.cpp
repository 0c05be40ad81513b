#include <algorithm>
#include <set>

#include "access.hpp"
#include "run.hpp"

namespace ff::detail {
namespace {

std::uint64_t hash(std::uint64_t so_far, const std::string& text) {
    for (const char c : text)
        so_far = (so_far ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
    return (so_far ^ 0xff) * 1099511628211ULL;
}

/// Items leave together while the engine is busy, and count as one message, unless who asks for
/// so many messages wants no more items to be on their way.
constexpr std::size_t travel_together = 64;

ff_node* end_node(const runner& end, bool out) {
    ff_node* const node = end.node;
    if (node == nullptr || !node->isComp()) return node;
    const auto& comb = static_cast<const ff_comb&>(*node);
    return out ? comb.getLast() : comb.getFirst();
}

}  // namespace

far_group& distributed_part::group(const std::string& name) {
    auto& made = groups_[name];
    if (made == nullptr) made = std::make_unique<far_group>(*this, *mine_, *all_.config.find(name));
    return *made;
}

bool distributed_part::check_groups() const {
    for (const std::string& fault : all_.faults)
        error("%s\n", fault.c_str());
    if (!all_.faults.empty()) return false;
    for (const auto& each : net_->runners) {
        if (each->group.empty()) {
            error("node %ld is in no group, expected createGroup() of it or of a block around it\n",
                  static_cast<long>(each->node != nullptr ? each->node->get_my_id() : -1));
            return false;
        }
        if (all_.config.find(each->group) == nullptr) {
            error("group %s is not in the configuration file, which all groups must be\n",
                  each->group.c_str());
            return false;
        }
    }
    return true;
}

/// Who makes bytes of the items at that end, or items of bytes. A default emitter or collector
/// passes on items of the nodes around it.
ff_node* distributed_part::converter(const runner& end, bool out) const {
    ff_node* const own = end_node(end, out);
    const auto can = [out](ff_node* node) {
        return node != nullptr && (out ? node->isSerializable() : node->isDeserializable());
    };
    if (own != nullptr) return can(own) ? own : nullptr;
    for (const edge& each : net_->edges) {
        if ((out ? each.to : each.from) != &end) continue;
        ff_node* const next = end_node(out ? *each.from : *each.to, out);
        if (can(next)) return next;
    }
    return nullptr;
}

void distributed_part::connect_edge(std::uint32_t number, const edge& between) {
    const bool from_here = between.from->group == all_.mine;
    const bool to_here = between.to->group == all_.mine;
    if (from_here == to_here) return;
    far_group& there = group(from_here ? between.to->group : between.from->group);
    (from_here ? there.listens : there.sends) = true;
    auto made = std::make_unique<far_edge>(*this, number, between, there, from_here);
    made->node = converter(from_here ? *between.from : *between.to, from_here);
    if (made->node == nullptr)
        throw std::runtime_error(
            std::string("an item goes from group ") + between.from->group + " to group " +
            between.to->group + ", and a node does not know how to " +
            (from_here ? "send" : "read") +
            " it, expected a typed node (ff_node_t) of a type that has serialize(Archive&), or "
            "serializeF and deserializeF; include ff/dff.hpp before its class");
    if (from_here) {
        const std::size_t messages =
            between.internal ? mine_->internal_on_the_fly : mine_->on_the_fly;
        const std::size_t window = std::max<std::size_t>(
            messages * (mine_->asks_on_the_fly ? mine_->batch_size
                                               : std::max(mine_->batch_size, travel_together)),
            1);
        between.queue->send_to(*made, window);
        made->window = between.queue->capacity();
    } else {
        made->reads_in_place = made->node->deserializeF.only_reads();
        between.queue->receive_from(*made);
    }
    edges_[number] = std::move(made);
}

bool distributed_part::plan(ff_node& whole) {
    mine_ = all_.config.find(all_.mine);
    net_ = expand(whole, false, [this](const ff_node& node) -> const std::string* {
        const auto found = all_.of.find(&node);
        return found != all_.of.end() ? &found->second : nullptr;
    });
    if (net_ == nullptr || !check_groups()) return false;
    for (const auto& each : net_->runners)
        if (each->group == all_.mine) runners_.push_back(each);
    if (runners_.empty()) {
        error("group %s has no nodes in this program, expected createGroup(\"%s\")\n",
              all_.mine.c_str(), all_.mine.c_str());
        return false;
    }
    graph_ = 14695981039346656037ULL;
    edges_.resize(net_->edges.size());
    for (std::size_t i = 0; i != net_->edges.size(); ++i) {
        const edge& each = net_->edges[i];
        graph_ = hash(hash(graph_, each.from->group), each.to->group);
        connect_edge(static_cast<std::uint32_t>(i), each);
    }
    if (!mine_->thread_mapping.empty())
        for (const auto& each : runners_)
            each->cpu = static_cast<int>(threadMapper::instance()->getCoreId());
    return true;
}

}  // namespace ff::detail
