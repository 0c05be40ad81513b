#pragma once

#include <vector>

#include <ff/farm_block.hpp>

namespace ff {

/// A farm that makes its own load balancer and gatherer, of a program's classes: FastFlow 2's
/// ff_farm. Both are constructed from the largest number of workers, an int.
///
/// Owner, threads, failure: as ff_farm.
template <typename LoadBalancer = ff_loadbalancer, typename Gatherer = ff_gatherer>
class ff_farm_of : public ff_farm {
public:
    using lb_t = LoadBalancer;
    using gt_t = Gatherer;

    explicit ff_farm_of(bool input_channel = false, int in_entries = DEFAULT_BUFFER_CAPACITY,
                        int out_entries = DEFAULT_BUFFER_CAPACITY, bool cleanup_workers = false,
                        int max_num_workers = DEF_MAX_NUM_WORKERS, bool fixed = FF_FIXED_SIZE)
        : ff_farm(input_channel, in_entries, out_entries, cleanup_workers,
                  static_cast<size_t>(max_num_workers), fixed) {
        own(max_num_workers);
    }
    explicit ff_farm_of(const std::vector<ff_node*>& workers, ff_node* emitter = nullptr,
                        ff_node* collector = nullptr, bool input_channel = false)
        : ff_farm(workers, emitter, collector, input_channel) {
        own(DEF_MAX_NUM_WORKERS);
    }

    /// Null after setlb() or setgt() of another class.
    LoadBalancer* getlb() const { return dynamic_cast<LoadBalancer*>(ff_farm::getlb()); }
    Gatherer* getgt() const { return dynamic_cast<Gatherer*>(ff_farm::getgt()); }

private:
    void own(int max_num_workers) {
        setlb(new LoadBalancer(max_num_workers), true);
        setgt(new Gatherer(max_num_workers), true);
    }
};

/// FastFlow 2's ordered farm: a farm whose results leave in the order in which items came. It
/// always has a collector, which passes on what comes unless setCollectorF() gives another.
///
/// Owner, threads, failure: as ff_farm; the program owns emitter and collector.
class ff_ofarm : public ff_farm {
public:
    explicit ff_ofarm(bool input_channel = false, int in_entries = DEFAULT_BUFFER_CAPACITY,
                      int out_entries = DEFAULT_BUFFER_CAPACITY, bool cleanup_workers = false,
                      int max_num_workers = DEF_MAX_NUM_WORKERS, bool fixed = FF_FIXED_SIZE)
        : ff_farm(input_channel, in_entries, out_entries, cleanup_workers,
                  static_cast<size_t>(max_num_workers), fixed) {
        set_ordered();
        add_collector(nullptr);
    }
    /// The last one that was given counts. A null pointer: none of the program's.
    void setEmitterF(ff_node* emitter) { change_emitter(emitter); }
    void setCollectorF(ff_node* collector) {
        remove_collector();
        add_collector(collector);
    }
};
// Of its load balancer and gatherer.
using ofarm_lb = ff_loadbalancer;
using ofarm_gt = ff_gatherer;

}  // namespace ff
