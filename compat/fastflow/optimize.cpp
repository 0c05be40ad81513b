#include <ff/optimize.hpp>

#include "access.hpp"

namespace ff {
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
