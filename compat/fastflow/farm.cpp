#include <algorithm>

#include "network.hpp"

namespace ff {

ff_farm::ff_farm(bool input_channel, int in_entries, int out_entries, bool cleanup_workers,
                 size_t max_num_workers, bool fixed)
    : accelerator(input_channel, in_entries, out_entries, fixed),
      cleanup_workers_(cleanup_workers),
      max_workers_(max_num_workers),
      own_lb_(std::make_shared<ff_loadbalancer>(max_num_workers)),
      own_gt_(std::make_shared<ff_gatherer>(static_cast<int>(max_num_workers))),
      lb_(own_lb_.get()),
      gt_(own_gt_.get()) {}

ff_farm::ff_farm(const std::vector<ff_node*>& workers, ff_node* emitter, ff_node* collector,
                 bool input_channel)
    : ff_farm(input_channel) {
    add_workers(workers);
    if (emitter != nullptr) add_emitter(emitter);
    add_collector(collector);
}

ff_farm::ff_farm(const ff_farm& other)
    : accelerator(other),
      workers_(other.workers_),
      emitter_(other.emitter_),
      collector_(other.collector_),
      with_collector_(other.with_collector_),
      ordered_(other.ordered_),
      ordering_memory_(other.ordering_memory_),
      workers_back_(other.workers_back_),
      collector_back_(other.collector_back_),
      cleanup_workers_(other.cleanup_workers_),
      cleanup_emitter_(other.cleanup_emitter_),
      cleanup_collector_(other.cleanup_collector_),
      ondemand_(other.ondemand_),
      max_workers_(other.max_workers_),
      own_lb_(other.own_lb_),
      own_gt_(other.own_gt_),
      lb_(other.lb_),
      gt_(other.gt_) {
    auto& from = const_cast<ff_farm&>(other);
    owned_.swap(from.owned_);
    from.cleanup_workers_ = from.cleanup_emitter_ = from.cleanup_collector_ = false;
}

ff_farm::~ff_farm() {
    end_threads();
    svector<ff_node*> going = owned_;
    if (cleanup_workers_) going += workers_;
    if (cleanup_emitter_ && emitter_ != nullptr) going.push_back(emitter_);
    if (cleanup_collector_ && collector_ != nullptr) going.push_back(collector_);
    std::sort(going.begin(), going.end());
    for (auto at = going.begin(), last = std::unique(going.begin(), going.end()); at != last; ++at)
        delete *at;
}

int ff_farm::add_workers(const std::vector<ff_node*>& workers) {
    if (workers.empty() || workers_.size() + workers.size() > max_workers_) {
        error("add_workers: %zu workers beside %zu, expected 1 to %zu together\n", workers.size(),
              workers_.size(), max_workers_);
        return -1;
    }
    if (std::find(workers.begin(), workers.end(), nullptr) != workers.end()) {
        error("add_workers: a null pointer among the workers, expected nodes\n");
        return -1;
    }
    for (ff_node* worker : workers)
        workers_.push_back(worker);
    detail::outdate(*this);
    return 0;
}
int ff_farm::change_workers(const std::vector<ff_node*>& workers) {
    workers_.clear();
    return add_workers(workers);
}

int ff_farm::add_emitter(ff_node* emitter) {
    if (emitter == nullptr) return 0;
    if (emitter->isFarm() || emitter->isAll2All() || emitter->isPipe()) {
        error(
            "add_emitter: a farm, pipeline or all-to-all, expected a node or a combination of "
            "nodes\n");
        return -1;
    }
    if (emitter_ != nullptr) {
        error("add_emitter: there is an emitter already, expected change_emitter()\n");
        return -1;
    }
    emitter_ = emitter;
    detail::outdate(*this);
    return 0;
}
int ff_farm::change_emitter(ff_node* emitter, bool cleanup) {
    if (cleanup_emitter_ && emitter_ != nullptr && emitter_ != emitter) owned_.push_back(emitter_);
    emitter_ = nullptr;
    detail::outdate(*this);
    cleanup_emitter_ = cleanup;
    return add_emitter(emitter);
}

int ff_farm::add_collector(ff_node* collector, bool cleanup) {
    if (collector != nullptr &&
        (collector->isFarm() || collector->isAll2All() || collector->isPipe())) {
        error(
            "add_collector: a farm, pipeline or all-to-all, expected a node or a combination of "
            "nodes\n");
        return -1;
    }
    if (with_collector_ && collector_ != nullptr) {
        error("add_collector: there is a collector already, expected remove_collector() first\n");
        return -1;
    }
    collector_ = collector;
    with_collector_ = true;
    detail::outdate(*this);
    if (cleanup) cleanup_collector_ = true;
    return 0;
}
int ff_farm::remove_collector() {
    if (cleanup_collector_ && collector_ != nullptr) owned_.push_back(collector_);
    cleanup_collector_ = false;
    collector_ = nullptr;
    detail::access::filter(*gt_) = nullptr;
    with_collector_ = false;
    detail::outdate(*this);
    return 0;
}

bool ff_farm::change_node(ff_node* old, ff_node* with, bool cleanup, bool forget) {
    if (old == nullptr || with == nullptr) return false;
    if (old == emitter_) return change_emitter(with, cleanup) == 0;
    if (with_collector_ && old == collector_) {
        remove_collector();
        return add_collector(with, cleanup) == 0;
    }
    const auto found = std::find(workers_.begin(), workers_.end(), old);
    if (found == workers_.end()) return false;
    if (forget)
        owned_.erase(std::remove(owned_.begin(), owned_.end(), old), owned_.end());
    else if (cleanup_workers_)
        owned_.push_back(old);
    *found = with;
    detail::outdate(*this);
    if (cleanup && !cleanup_workers_) owned_.push_back(with);
    return true;
}

void ff_farm::setlb(ff_loadbalancer* lb, bool cleanup) {
    auto given = detail::shared_if(lb, cleanup, "setlb");
    if (given == nullptr) return;
    own_lb_ = std::move(given);
    lb_ = lb;
    detail::access::calls_back(*lb) = true;
}
void ff_farm::setgt(ff_gatherer* gt, bool cleanup) {
    auto given = detail::shared_if(gt, cleanup, "setgt");
    if (given == nullptr) return;
    own_gt_ = std::move(given);
    gt_ = gt;
}

int ff_farm::wrap_around() {
    if (hasCollector()) {
        if (has_input_channel_) {
            error(
                "wrap_around: a farm with an input channel and a collector, expected one of "
                "them\n");
            return -1;
        }
        collector_back_ = true;
    } else {
        workers_back_ = true;
    }
    return 0;
}

bool ff_farm::isPrepared() const {
    return detail::access::network_of(const_cast<ff_farm&>(*this)) != nullptr;
}
int ff_farm::cardinality() const {
    int threads = hasCollector() ? 2 : 1;
    for (const ff_node* worker : workers_)
        threads += worker->cardinality();
    return threads;
}
void ff_farm::get_out_nodes(svector<ff_node*>& nodes) {
    if (!hasCollector()) {
        for (ff_node* worker : workers_)
            worker->get_out_nodes(nodes);
    } else if (collector_ != nullptr) {
        collector_->get_out_nodes(nodes);
    } else {
        nodes.push_back(this);
    }
}

void ff_farm::thaw(bool again, ssize_t workers) {
    if (!renew()) return;
    // First who waits for input: nobody before it must be at the end of the stream too early.
    if (hasCollector()) gt_->thaw(again, workers);
    lb_->thaw(again, workers);
}
int ff_farm::wait_collector() {
    return hasCollector() ? gt_->wait() : -1;
}

}  // namespace ff
