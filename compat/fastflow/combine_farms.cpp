#include <utility>

#include <ff/graph_utils.hpp>

#include "spreading_node.hpp"

namespace ff {
namespace {

std::vector<ff_node*> plain(const svector<ff_node*>& nodes) {
    return {nodes.begin(), nodes.end()};
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

namespace detail {

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

}  // namespace ff
