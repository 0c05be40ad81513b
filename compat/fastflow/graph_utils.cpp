#include <ff/graph_utils.hpp>

#include "spreading_node.hpp"

namespace ff {
namespace {

bool is_block(const ff_node& node) {
    return node.isFarm() || node.isPipe() || node.isAll2All();
}
/// `node` before the emitter of `farm`.
int combine_emitter(ff_farm& farm, ff_node* node, bool cleanup) {
    ff_node* const emitter = farm.getEmitter();
    if (emitter == nullptr) {
        const int done = farm.add_emitter(node);
        farm.cleanup_emitter(cleanup);
        return done;
    }
    const bool owned = farm.isset_cleanup_emitter();
    ff_node* const several = detail::with_several_outputs(emitter, owned);
    farm.cleanup_emitter(false);
    return farm.change_emitter(new ff_comb(node, several, cleanup, several != emitter || owned),
                               true);
}
int combine_collector(ff_farm& farm, ff_node* node, bool cleanup) {
    ff_node* const collector = farm.getCollector();
    if (collector == nullptr) {
        farm.remove_collector();
        return farm.add_collector(node, cleanup);
    }
    const bool owned = farm.isset_cleanup_collector();
    farm.cleanup_collector(false);
    farm.remove_collector();
    return farm.add_collector(new ff_comb(collector, node, owned, cleanup), true);
}

/// Applies `combine` to each node: the first gets `node`, others copies.
template <typename Combine>
int each_of(const svector<ff_node*>& nodes, ff_node* node, bool cleanup,
            const detail::copy_of& copy, Combine combine) {
    int result = 0;
    for (size_t i = 0; i != nodes.size(); ++i) {
        ff_node* const mine = i == 0 ? node : copy();
        if (mine == nullptr || combine(nodes[i], mine, i == 0 ? cleanup : true) < 0) result = -1;
    }
    return result;
}

int combine_last_of(ff_node& block, ff_node* node, bool cleanup, const detail::copy_of& copy);

int combine_workers(ff_farm& farm, ff_node* node, bool cleanup, const detail::copy_of& copy) {
    const svector<ff_node*> workers = farm.getWorkers();
    if (is_block(*workers.front()))
        return each_of(workers, node, cleanup, copy, [&](ff_node* worker, ff_node* mine, bool own) {
            return combine_last_of(*worker, mine, own, copy);
        });
    std::vector<ff_node*> combined;
    const bool owned = farm.isset_cleanup_workers();
    const int result =
        each_of(workers, node, cleanup, copy, [&](ff_node* worker, ff_node* mine, bool own) {
            combined.push_back(new ff_comb(worker, mine, owned, own));
            return 0;
        });
    farm.cleanup_workers(true);
    return farm.change_workers(combined) < 0 ? -1 : result;
}

int combine_second_set(ff_a2a& all, ff_node* node, bool cleanup, const detail::copy_of& copy) {
    const svector<ff_node*> nodes = all.getSecondSet();
    if (nodes.front()->isPipe())
        return each_of(nodes, node, cleanup, copy, [&](ff_node* pipe, ff_node* mine, bool own) {
            return detail::combine_last(static_cast<ff_pipeline&>(*pipe), mine, own, copy);
        });
    std::vector<ff_node*> combined;
    const int result =
        each_of(nodes, node, cleanup, copy, [&](ff_node* one, ff_node* mine, bool own) {
            combined.push_back(new ff_comb(one, mine, false, own));
            return 0;
        });
    return all.change_secondset(combined, true) < 0 ? -1 : result;
}

int combine_first_set(ff_a2a& all, ff_node* node, bool cleanup, const detail::copy_of& copy) {
    const svector<ff_node*> nodes = all.getFirstSet();
    if (nodes.front()->isPipe())
        return each_of(nodes, node, cleanup, copy, [&](ff_node* pipe, ff_node* mine, bool own) {
            return detail::combine_first(static_cast<ff_pipeline&>(*pipe), mine, own, copy);
        });
    std::vector<ff_node*> combined;
    const int result =
        each_of(nodes, node, cleanup, copy, [&](ff_node* one, ff_node* mine, bool own) {
            combined.push_back(new ff_comb(mine, one, own, false));
            return 0;
        });
    return all.change_firstset(combined, all.ondemand_buffer(), true) < 0 ? -1 : result;
}

int combine_last_of(ff_node& block, ff_node* node, bool cleanup, const detail::copy_of& copy) {
    if (block.isPipe())
        return detail::combine_last(static_cast<ff_pipeline&>(block), node, cleanup, copy);
    if (block.isAll2All())
        return combine_second_set(static_cast<ff_a2a&>(block), node, cleanup, copy);
    auto& farm = static_cast<ff_farm&>(block);
    return farm.hasCollector() ? combine_collector(farm, node, cleanup)
                               : combine_workers(farm, node, cleanup, copy);
}

}  // namespace

namespace detail {

int combine_first(ff_pipeline& pipe, ff_node* node, bool cleanup, const copy_of& copy) {
    pipe.flatten();
    ff_node* const first = pipe.get_node(0);
    if (first == nullptr || node == nullptr || is_block(*node)) {
        error("combine_with_firststage: an empty pipeline, or no node to combine it with\n");
        return -1;
    }
    if (first->isAll2All())
        return combine_first_set(static_cast<ff_a2a&>(*first), node, cleanup, copy);
    if (first->isFarm()) return combine_emitter(static_cast<ff_farm&>(*first), node, cleanup);
    pipe.remove_stage(0);
    pipe.insert_stage(0, new ff_comb(node, first, cleanup), true);
    return 0;
}

int combine_last(ff_pipeline& pipe, ff_node* node, bool cleanup, const copy_of& copy) {
    pipe.flatten();
    ff_node* const last = pipe.get_lastnode();
    if (last == nullptr || node == nullptr || is_block(*node)) {
        error("combine_with_laststage: an empty pipeline, or no node to combine it with\n");
        return -1;
    }
    if (is_block(*last)) return combine_last_of(*last, node, cleanup, copy);
    const auto at = static_cast<int>(pipe.getStages().size()) - 1;
    pipe.remove_stage(at);
    pipe.insert_stage(at, new ff_comb(last, node, false, cleanup), true);
    return 0;
}

}  // namespace detail

ff_pipeline combine_nodes_in_pipeline(ff_node& node1, ff_node& node2, bool cleanup1,
                                      bool cleanup2) {
    ff_pipeline pipe;
    if (node1.isAll2All() || node2.isAll2All()) {
        error("combine_nodes_in_pipeline: an all-to-all, expected nodes or farms\n");
        return pipe;
    }
    if (!node1.isFarm() && node2.isFarm()) {
        combine_emitter(static_cast<ff_farm&>(node2), &node1, cleanup1);
        pipe.add_stage(&node2, cleanup2);
        return pipe;
    }
    if (node1.isFarm() && !node2.isFarm()) {
        combine_collector(static_cast<ff_farm&>(node1), &node2, cleanup2);
        pipe.add_stage(&node1, cleanup1);
        return pipe;
    }
    if (node1.isFarm() && !node1.isOFarm()) {
        auto& farm1 = static_cast<ff_farm&>(node1);
        auto& farm2 = static_cast<ff_farm&>(node2);
        if (ff_node* const collector = farm1.getCollector()) {
            const bool owned = farm1.isset_cleanup_collector();
            farm1.cleanup_collector(false);
            combine_emitter(farm2, collector, owned);
        }
        farm1.remove_collector();
    }
    pipe.add_stage(&node1, cleanup1);
    pipe.add_stage(&node2, cleanup2);
    return pipe;
}

ff_node* getBB(ff_node* start, ff_node* node) {
    if (start == node) return node;
    svector<ff_node*> parts;
    if (start->isPipe()) {
        parts = static_cast<ff_pipeline*>(start)->getStages();
    } else if (start->isAll2All()) {
        parts = static_cast<ff_a2a*>(start)->getFirstSet();
        parts += static_cast<ff_a2a*>(start)->getSecondSet();
    } else if (start->isFarm()) {
        auto* const farm = static_cast<ff_farm*>(start);
        parts = farm->getWorkers();
        parts.push_back(farm->getEmitter());
        parts.push_back(farm->getCollector());
    } else if (start->isComp()) {
        parts.push_back(static_cast<ff_comb*>(start)->getLeft());
        parts.push_back(static_cast<ff_comb*>(start)->getRight());
    }
    for (ff_node* part : parts) {
        if (part == nullptr) continue;
        if (part == node) return start;
        if (ff_node* const found = getBB(part, node)) return found;
    }
    return nullptr;
}

}  // namespace ff
