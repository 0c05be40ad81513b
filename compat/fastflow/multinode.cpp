#include "network.hpp"

namespace ff {

ff_minode::ff_minode(int max_num_workers, bool calls_back)
    : ff_node(calls_back), own_(std::make_shared<ff_gatherer>(max_num_workers)), gt_(own_.get()) {}
ff_minode::ff_minode(const ff_minode& other)
    : ff_node(other), own_(std::make_shared<ff_gatherer>()), gt_(own_.get()) {}
ff_minode::~ff_minode() = default;
size_t ff_minode::get_num_inchannels() const {
    return gt_->get_num_inchannels();
}
size_t ff_minode::get_num_outchannels() const {
    return gt_->get_num_outchannels();
}
size_t ff_minode::get_num_feedbackchannels() const {
    return gt_->get_num_feedbackchannels();
}
void ff_minode::setgt(ff_gatherer* gt, bool cleanup) {
    if (auto given = detail::shared_if(gt, cleanup, "setgt")) {
        own_ = std::move(given);
        gt_ = gt;
    }
}
void ff_minode::skipfirstpop(bool skip) {
    gt_->skipfirstpop(skip);
    ff_node::skipfirstpop(skip);
}
int ff_minode::all_gather(void* task, void** items) {
    return gt_->all_gather(task, items);
}

ff_monode::ff_monode(int max_num_workers, bool calls_back)
    : ff_node(calls_back),
      own_(std::make_shared<ff_loadbalancer>(static_cast<size_t>(max_num_workers))),
      lb_(own_.get()) {}
ff_monode::ff_monode(const ff_monode& other)
    : ff_node(other),
      own_(std::make_shared<ff_loadbalancer>()),
      lb_(own_.get()),
      ondemand_(other.ondemand_) {}
ff_monode::~ff_monode() = default;

void ff_monode::setlb(ff_loadbalancer* lb, bool cleanup) {
    if (auto given = detail::shared_if(lb, cleanup, "setlb")) {
        own_ = std::move(given);
        lb_ = lb;
        detail::access::calls_back(*lb) = true;
    }
}

bool ff_monode::ff_send_out_to(void* task, int id, unsigned long retry, unsigned long ticks) {
    if (detail::access::callback(*this, task, id, retry)) return true;
    return lb_->ff_send_out_to(task, id, retry, ticks);
}
bool ff_monode::ff_send_out(void* task, int id, unsigned long retry, unsigned long) {
    if (task == nullptr) return false;
    if (detail::access::callback(*this, task, id, retry)) return true;
    return detail::access::schedule(*lb_, task, retry);
}
void ff_monode::broadcast_task(void* task) {
    if (!detail::access::callback(*this, task, -1, static_cast<unsigned long>(-1)))
        lb_->broadcast_task(task);
}

void ff_monode::get_out_nodes(svector<ff_node*>& nodes) {
    if (detail::access::outs(*lb_).empty()) nodes.push_back(this);
    show(nodes, false);
}
void ff_monode::get_out_nodes_feedback(svector<ff_node*>& nodes) {
    show(nodes, true);
}

void ff_monode::show(svector<ff_node*>& nodes, bool feedback) {
    auto& shown = detail::access::shown(*lb_);
    if (shown.empty())
        for (const auto& queue : detail::access::outs(*lb_))
            shown.push_back(std::make_unique<ff_buffernode>(queue));
    for (size_t at = 0; at != shown.size(); ++at)
        if ((at < lb_->get_num_feedbackchannels()) == feedback) nodes.push_back(shown[at].get());
}

}  // namespace ff
