#include <utility>

#include <ff/graph_utils.hpp>
#include <ff/optimize.hpp>

#include "network.hpp"

namespace ff {
namespace {

/// A node with one output as one with several: what it sends goes to whoever is next.
struct spreading_node : ff_monode {
    spreading_node(ff_node* inner, bool own) : node(inner), owned(own) {
        detail::access::on_send(*node, &send, this);
    }
    ~spreading_node() override {
        if (owned) delete node;
    }
    void* svc(void* task) override { return node->svc(task); }
    int svc_init() override { return node->svc_init(); }
    void svc_end() override { node->svc_end(); }
    void eosnotify(ssize_t id) override { node->eosnotify(id); }
    void set_id(ssize_t id) override {
        ff_monode::set_id(id);
        detail::access::id(*node, id);
    }
    static bool send(void* item, int id, unsigned long retry, unsigned long ticks, void* self) {
        return static_cast<spreading_node*>(self)->ff_send_out(item, id, retry, ticks);
    }
    ff_node* node;
    bool owned;
};

ff_node* with_several_outputs(ff_node* node, bool own) {
    return node->isMultiOutput() ? node : new spreading_node(node, own);
}
bool is_block(const ff_node& node) {
    return node.isFarm() || node.isPipe() || node.isAll2All();
}
std::vector<ff_node*> plain(const svector<ff_node*>& nodes) {
    return {nodes.begin(), nodes.end()};
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
    ff_node* const several = with_several_outputs(emitter, owned);
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

/// The emitter of one farm and the collector of another, with what the farms own of them.
void take_ends(ff_farm& whole, ff_farm& farm1, ff_farm& farm2) {
    if (ff_node* emitter = farm1.getEmitter()) {
        whole.add_emitter(emitter);
        whole.cleanup_emitter(farm1.isset_cleanup_emitter());
        farm1.cleanup_emitter(false);
    }
    if (farm2.hasCollector()) {
        whole.add_collector(farm2.getCollector(), farm2.isset_cleanup_collector());
        farm2.cleanup_collector(false);
    }
    if (farm1.ondemand_buffer() > 0) whole.set_scheduling_ondemand(farm1.ondemand_buffer());
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

ff_farm farms_a2a(ff_farm& farm1, const copy_of& after_first, const copy_of& before_second,
                  ff_farm& farm2) {
    auto* const all = new ff_a2a;
    std::vector<ff_node*> first = plain(farm1.getWorkers());
    std::vector<ff_node*> second = plain(farm2.getWorkers());
    const bool own1 = farm1.isset_cleanup_workers();
    const bool own2 = farm2.isset_cleanup_workers();
    if (after_first)
        for (ff_node*& node : first)
            node = new ff_comb(node, with_several_outputs(after_first(), true), own1, true);
    if (before_second)
        for (ff_node*& node : second)
            node = new ff_comb(before_second(), node, true, own2);
    all->add_firstset(first, farm2.ondemand_buffer(), own1 || after_first);
    all->add_secondset(second, own2 || before_second);
    farm1.cleanup_workers(false);
    farm2.cleanup_workers(false);
    ff_farm whole;
    take_ends(whole, farm1, farm2);
    whole.add_workers({all});
    whole.cleanup_workers();
    return whole;
}

namespace {

ff_pipeline refuse_farms(const char* why) {
    error("combine_farms: %s\n", why);
    return ff_pipeline();
}
ff_pipeline both(ff_farm& farm1, ff_farm& farm2) {
    farm1.remove_collector();
    ff_pipeline pipe;
    pipe.add_stage(&farm1);
    pipe.add_stage(&farm2);
    return pipe;
}
template <typename Block>
ff_pipeline alone(const Block& block) {
    ff_pipeline pipe;
    pipe.add_stage(block);
    return pipe;
}

}  // namespace

ff_pipeline farms(ff_farm& farm1, ff_node* node1, const copy_of& copy1, ff_farm& farm2,
                  const copy_of& copy2, bool merge) {
    const bool ordered = farm1.isOFarm() || farm2.isOFarm();
    if (ordered && (!merge || copy1 || copy2))
        return refuse_farms("an ordered farm, expected no nodes between the farms, and merge");
    if (ordered) {
        if (farm1.getNWorkers() == farm2.getNWorkers())
            return refuse_farms(
                "two farms with as many workers, one of them ordered, expected combine_farms_nf()");
        return farm1.isOFarm() ? combine_ofarm_farm(farm1, farm2) : both(farm1, farm2);
    }
    if (merge && !copy1 && !copy2 && farm1.getNWorkers() == farm2.getNWorkers())
        return alone(combine_farms_nf(farm1, farm2));
    if (!merge || (!copy1 && !copy2)) {
        farm1.remove_collector();
        // A node of the second farm alone goes with the first one's workers, as in FastFlow.
        return copy1 ? alone(farms_a2a(farm1, copy1, copy2, farm2))
                     : alone(farms_a2a(farm1, copy2, {}, farm2));
    }
    if (copy1 && copy2)
        farm2.change_emitter(new ff_comb(copy1(), with_several_outputs(copy2(), true), true, true),
                             true);
    else
        farm2.change_emitter(copy1 ? node1 : nullptr);
    return both(farm1, farm2);
}

}  // namespace detail

ff_farm combine_farms_nf(ff_farm& farm1, ff_farm& farm2) {
    ff_farm whole;
    const auto& first = farm1.getWorkers();
    const auto& second = farm2.getWorkers();
    if (first.size() != second.size() || farm1.isOFarm() != farm2.isOFarm()) {
        error(
            "combine_farms_nf: farms with different numbers of workers, or only one of them "
            "ordered\n");
        return whole;
    }
    take_ends(whole, farm1, farm2);
    std::vector<ff_node*> workers;
    for (size_t i = 0; i != first.size(); ++i)
        workers.push_back(new ff_comb(first[i], second[i], farm1.isset_cleanup_workers(),
                                      farm2.isset_cleanup_workers()));
    farm1.cleanup_workers(false);
    farm2.cleanup_workers(false);
    whole.add_workers(workers);
    whole.cleanup_workers();
    if (farm1.isOFarm()) whole.set_ordered();
    return whole;
}

ff_pipeline combine_ofarm_farm(ff_farm& farm1, ff_farm& farm2) {
    ff_pipeline pipe;
    if (!farm1.isOFarm()) {
        error("combine_ofarm_farm: the first farm is not ordered\n");
        return pipe;
    }
    pipe.add_stage(std::as_const(farm1));
    pipe.add_stage(std::as_const(farm2));
    return pipe;
}

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

namespace {

/// Whether every node that a stage before `block` would reach has several inputs.
bool takes_several(ff_node& block) {
    if (block.isPipe()) {
        ff_node* const first = static_cast<ff_pipeline&>(block).get_firststage();
        return first != nullptr && takes_several(*first);
    }
    if (!block.isAll2All()) return block.isMultiInput();
    for (ff_node* node : static_cast<ff_a2a&>(block).getFirstSet())
        if (!takes_several(*node)) return false;
    return true;
}

/// Removes collectors that only pass on, where what comes after them can have several inputs.
void remove_collectors(ff_node& block, bool next_takes_several) {
    if (block.isPipe()) {
        const auto& stages = static_cast<ff_pipeline&>(block).getStages();
        for (size_t i = 0; i != stages.size(); ++i)
            remove_collectors(*stages[i], i + 1 < stages.size() ? takes_several(*stages[i + 1])
                                                                : next_takes_several);
    } else if (block.isAll2All()) {
        for (ff_node* node : static_cast<ff_a2a&>(block).getSecondSet())
            remove_collectors(*node, next_takes_several);
    } else if (block.isFarm()) {
        auto& farm = static_cast<ff_farm&>(block);
        const bool passes_on = farm.hasCollector() && farm.getCollector() == nullptr;
        if (passes_on && next_takes_several && !farm.isOFarm() &&
            !detail::access::collector_back(farm))
            farm.remove_collector();
        for (ff_node* worker : farm.getWorkers())
            remove_collectors(*worker, farm.hasCollector() || next_takes_several);
    }
}

int optimize(ff_node& block, const OptLevel& level) {
    if (level.remove_collector) remove_collectors(block, false);
    return 0;
}

}  // namespace

int optimize_static(ff_pipeline& pipe, const OptLevel& level) {
    return optimize(pipe, level);
}
int optimize_static(ff_farm& farm, const OptLevel& level) {
    return optimize(farm, level);
}
int optimize_static(ff_a2a& all, const OptLevel& level) {
    return optimize(all, level);
}

}  // namespace ff
