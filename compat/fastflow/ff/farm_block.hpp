#pragma once

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <ff/accelerator.hpp>
#include <ff/all2all.hpp>
#include <ff/make_unique.hpp>
#include <ff/multinode.hpp>
#include <ff/node.hpp>

namespace ff {

/// Workers behind an emitter, which chooses who gets an item, and before a collector, if there is
/// one. Any block is a worker; emitter and collector are nodes or combinations of nodes.
///
/// Owner:   the program owns the nodes, but for those that it tells the farm to clean up.
/// Threads, failure: as ff_node.
class ff_farm : public detail::accelerator {
public:
    using lb_t = ff_loadbalancer;
    using gt_t = ff_gatherer;

    /// `input_channel`: items come from offload(), and go to load_result().
    explicit ff_farm(bool input_channel = false, int in_entries = DEFAULT_BUFFER_CAPACITY,
                     int out_entries = DEFAULT_BUFFER_CAPACITY, bool cleanup_workers = false,
                     size_t max_num_workers = DEF_MAX_NUM_WORKERS, bool fixed = FF_FIXED_SIZE);
    explicit ff_farm(const std::vector<ff_node*>& workers, ff_node* emitter = nullptr,
                     ff_node* collector = nullptr, bool input_channel = false);
    ff_farm(const std::vector<ff_node*>& workers, ff_node& emitter, ff_node& collector)
        : ff_farm(workers, &emitter, &collector) {}
    /// Takes over what `other` would have deleted, and its outputs and inputs.
    ff_farm(const ff_farm& other);
    ~ff_farm() override;

    int add_workers(const std::vector<ff_node*>& workers);
    int change_workers(const std::vector<ff_node*>& workers);
    int add_emitter(ff_node* emitter);
    template <typename T, typename = std::enable_if_t<std::is_base_of_v<ff_node, T>>>
    int add_emitter(const T& emitter) {
        const int done = add_emitter(new T(emitter));
        if (done == 0) cleanup_emitter_ = true;
        return done;
    }
    int change_emitter(ff_node* emitter, bool cleanup = false);
    template <typename T, typename = std::enable_if_t<std::is_base_of_v<ff_node, T>>>
    int change_emitter(const T& emitter, bool = false) {
        return change_emitter(new T(emitter), true);
    }
    /// A null pointer: a collector that passes on whatever comes.
    int add_collector(ff_node* collector, bool cleanup = false);
    int remove_collector();
    bool change_node(ff_node* old, ff_node* with, bool cleanup = false,
                     bool forget = false) override;
    /// Outputs and inputs of a program's own class, which replace ours.
    void setlb(ff_loadbalancer* lb, bool cleanup = false);
    void setgt(ff_gatherer* gt, bool cleanup = false);

    /// An item goes to whoever has fewer than so many waiting.
    void set_scheduling_ondemand(int entries = 1) override {
        ondemand_ = entries < 1 ? 1 : entries;
    }
    int ondemand_buffer() const override { return ondemand_; }
    /// Results leave in the order in which items came, one or none for each. Workers are plain
    /// nodes.
    void set_ordered(size_t entries = DEF_OFARM_ONDEMAND_MEMORY) {
        ordered_ = true;
        ordering_memory_ = entries;
    }
    ssize_t ordering_memory_size() const {
        return ordered_ ? static_cast<ssize_t>(ordering_memory_) : 0;
    }
    // Accepted, and without effect: the order takes what memory it needs.
    void ordered_resize_memory(size_t) {}
    using ff_node::skipfirstpop;  // The same: each run says itself who begins without an item.
    /// Connects the collector, or the workers if there is none, to the emitter.
    int wrap_around();

    void cleanup_workers(bool on = true) { cleanup_workers_ = on; }
    void cleanup_emitter(bool on = true) { cleanup_emitter_ = on; }
    void cleanup_collector(bool on = true) { cleanup_collector_ = on; }
    void cleanup_all() { cleanup_workers_ = cleanup_emitter_ = cleanup_collector_ = true; }
    bool isset_cleanup_workers() const { return cleanup_workers_; }
    bool isset_cleanup_emitter() const { return cleanup_emitter_; }
    bool isset_cleanup_collector() const { return cleanup_collector_; }
    void setInputQueueLength(int entries, bool fixed = true) { size_inputs(entries, fixed); }
    void setOutputQueueLength(int entries, bool fixed = true) { size_outputs(entries, fixed); }

    bool isFarm() const override { return true; }
    bool isOFarm() const override { return ordered_; }
    bool isMultiInput() const override { return true; }
    bool isMultiOutput() const override {
        return !hasCollector() || (collector_ != nullptr && collector_->isMultiOutput());
    }
    bool isPrepared() const;
    bool hasCollector() const { return ordered_ || with_collector_; }
    ff_loadbalancer* getlb() const { return lb_; }
    ff_gatherer* getgt() const { return gt_; }
    const svector<ff_node*>& getWorkers() const { return workers_; }
    size_t getNWorkers() const { return workers_.size(); }
    virtual ff_node* getEmitter() const { return emitter_; }
    virtual ff_node* getCollector() const { return with_collector_ ? collector_ : nullptr; }
    int cardinality() const override;
    int numThreads() const { return cardinality(); }
    void get_out_nodes(svector<ff_node*>& nodes) override;

    /// As ff_node's; `workers`: how many of them take part in the next stream.
    void thaw(bool freeze = false, ssize_t workers = -1) override;
    int wait_collector();

private:
    friend struct detail::access;

    svector<ff_node*> workers_;
    svector<ff_node*> owned_;
    ff_node* emitter_ = nullptr;
    ff_node* collector_ = nullptr;
    bool with_collector_ = false;
    bool ordered_ = false;
    size_t ordering_memory_ = 0;
    bool workers_back_ = false;
    bool collector_back_ = false;
    bool cleanup_workers_ = false;
    bool cleanup_emitter_ = false;
    bool cleanup_collector_ = false;
    int ondemand_ = 0;
    size_t max_workers_;
    std::shared_ptr<ff_loadbalancer> own_lb_;
    std::shared_ptr<ff_gatherer> own_gt_;
    ff_loadbalancer* lb_;
    ff_gatherer* gt_;
};

/// A farm that owns its nodes, with typed results. It has a collector unless it is removed.
template <typename In = char, typename Out = In>
class ff_Farm : public ff_farm {
public:
    using in_type = In;
    using out_type = Out;

    explicit ff_Farm(std::vector<std::unique_ptr<ff_node>>&& workers,
                     std::unique_ptr<ff_node> emitter = nullptr,
                     std::unique_ptr<ff_node> collector = nullptr, bool input_channel = false)
        : ff_farm(input_channel) {
        ff_farm::add_collector(collector.get());
        take(std::move(workers), emitter.get());
        keep(std::move(emitter));
        keep(std::move(collector));
    }
    ff_Farm(std::vector<std::unique_ptr<ff_node>>&& workers, ff_node& emitter, ff_node& collector,
            bool input_channel = false)
        : ff_farm(input_channel) {
        ff_farm::add_collector(&collector);
        take(std::move(workers), &emitter);
    }
    ff_Farm(std::vector<std::unique_ptr<ff_node>>&& workers, ff_node& emitter,
            bool input_channel = false)
        : ff_farm(input_channel) {
        ff_farm::add_collector(nullptr);
        take(std::move(workers), &emitter);
    }
    ff_Farm(std::vector<std::unique_ptr<ff_node>>&& workers, bool input_channel)
        : ff_Farm(std::move(workers), nullptr, nullptr, input_channel) {}
    /// Workers that call `function`: Out* (In*, ff_node* self).
    template <typename Function,
              typename = std::enable_if_t<std::is_invocable_v<Function&, In*, ff_node*>>>
    explicit ff_Farm(Function function, ssize_t workers, bool input_channel = false)
        : ff_farm(input_channel) {
        ff_farm::add_collector(nullptr);
        std::vector<std::unique_ptr<ff_node>> made;
        for (ssize_t i = 0; i < workers; ++i)
            made.push_back(std::make_unique<ff_node_F<In, Out>>(function));
        take(std::move(made), nullptr);
    }
    ff_Farm(const ff_Farm& other) = default;
    ~ff_Farm() override { this->end_threads(); }  // Before its nodes go.

    int add_emitter(ff_node& emitter) { return ff_farm::add_emitter(&emitter); }
    int add_collector(ff_node& collector) {
        ff_farm::remove_collector();
        return ff_farm::add_collector(&collector);
    }

protected:
    void keep(std::unique_ptr<ff_node> node) {
        if (node != nullptr) kept_.push_back(std::move(node));
    }
    void take(std::vector<std::unique_ptr<ff_node>>&& workers, ff_node* emitter) {
        std::vector<ff_node*> plain;
        for (auto& worker : workers)
            plain.push_back(worker.get());
        ff_farm::add_workers(plain);
        if (emitter != nullptr) ff_farm::add_emitter(emitter);
        for (auto& worker : workers)
            keep(std::move(worker));
    }

private:
    std::vector<std::shared_ptr<ff_node>> kept_;
};

/// An ff_Farm whose results leave in the order in which items came.
template <typename In = char, typename Out = In>
class ff_OFarm : public ff_Farm<In, Out> {
public:
    explicit ff_OFarm(std::vector<std::unique_ptr<ff_node>>&& workers, bool input_channel = false)
        : ff_Farm<In, Out>(std::move(workers), input_channel) {
        this->set_ordered();
    }
    template <typename Function,
              typename = std::enable_if_t<std::is_invocable_v<Function&, In*, ff_node*>>>
    explicit ff_OFarm(Function function, ssize_t workers, bool input_channel = false)
        : ff_Farm<In, Out>(std::move(function), workers, input_channel) {
        this->set_ordered();
    }
};

}  // namespace ff
