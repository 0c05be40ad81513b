#pragma once

#include <memory>
#include <vector>

#include <ff/combine.hpp>

#include "inlet.hpp"

namespace ff::detail {

/// What the implementation does with the private parts of the public classes.
struct access {
    static bool active(const ff_node& node) { return node.in_active_; }
    static bool calls_back(const ff_node& node) { return node.calls_back_; }
    static void id(ff_node& node, ssize_t id) { node.set_id(id); }
    static channel*& direct(ff_node& node) { return node.direct_; }
    static auto& threads(ff_node& node) { return node.threads_; }
    static auto& network_of(ff_node& node) { return node.network_; }
    static bool has_input(const ff_node& node) { return node.has_input_channel_; }
    static void on_send(ff_node& node, ff_node::send_callback callback, void* argument) {
        node.callback_ = callback;
        node.callback_argument_ = argument;
    }
    /// False: the node has no callback.
    static bool callback(ff_node& node, void* item, int id, unsigned long retry) {
        if (node.callback_ == nullptr) return false;
        node.callback_(item, id, retry, ff_node::TICKS2WAIT, node.callback_argument_);
        return true;
    }
    static void bind(ff_minode& node, ff_gatherer* gt) { node.gt_ = gt; }
    static void set_channel(ff_minode& node, ssize_t channel, bool forward) {
        node.channel_ = channel;
        node.from_input_ = forward;
    }
    static void bind(ff_monode& node, ff_loadbalancer* lb) { node.lb_ = lb; }
    static void connect(ff_comb& comb) { comb.connect(); }
    static bool ended(const ff_comb& comb) { return comb.ended_; }
    static const std::vector<ff_node*>& chain(const ff_comb& comb) { return comb.chain_; }

    static auto& outs(ff_loadbalancer& lb) { return lb.outs_; }
    static auto& targets(ff_loadbalancer& lb) { return lb.targets_; }
    static auto& shown(ff_loadbalancer& lb) { return lb.shown_; }
    static auto& running(ff_loadbalancer& lb) { return lb.running_; }
    static auto& feedback(ff_loadbalancer& lb) { return lb.feedback_; }
    static auto& channel_id(ff_loadbalancer& lb) { return lb.channel_; }
    static auto& master_worker(ff_loadbalancer& lb) { return lb.master_worker_; }
    static auto& calls_back(ff_loadbalancer& lb) { return lb.calls_back_; }
    static auto& filter(ff_loadbalancer& lb) { return lb.filter_; }
    static auto& manager(ff_loadbalancer& lb) { return lb.manager_; }
    static auto& thread(ff_loadbalancer& lb) { return lb.thread_; }
    static auto& order(ff_loadbalancer& lb) { return lb.order_; }
    static auto& turns_ended(ff_loadbalancer& lb) { return lb.turns_ended_; }
    /// The usual case of sending to any: the next worker has room, and no class of the program
    /// chooses. False: it is not.
    static bool schedule_usual(ff_loadbalancer& lb, void* item) {
        if (!lb.usual_) return false;
        const size_t next = lb.next_ + 1 < lb.running_ ? lb.next_ + 1 : 0;
        channel& queue = *lb.outs_[next];
        if (queue.simple() && (lb.order_ == nullptr || !is_mark(item))) {
            lb.next_ = next;
            if (lb.order_ == nullptr) return queue.push_simple(item);
            lb.order_->tell(next);
            return queue.push_simple(item, true);  // It was told.
        }
        if (lb.order_ != nullptr || !queue.try_push(item)) return false;
        lb.next_ = next;
        return true;
    }
    static bool schedule(ff_loadbalancer& lb, void* item, unsigned long retry) {
        return schedule_usual(lb, item) || lb.schedule_task(item, retry);
    }
    /// An item was sent to any.
    static void call_back_out(ff_loadbalancer& lb) {
        if (lb.calls_back_out_) lb.callbackOut(&lb);
    }
    static void end(ff_loadbalancer& lb, void* mark) { lb.end(mark); }

    static bool skip_first(const ff_gatherer& gt) { return gt.skip_first_; }
    static auto& running(ff_gatherer& gt) { return gt.running_; }
    static auto& filter(ff_gatherer& gt) { return gt.filter_; }
    static auto& thread(ff_gatherer& gt) { return gt.thread_; }

    // For a worker that a farm no longer has, null.
    static void freeze(ff_node* node) {
        if (node != nullptr) node->freeze();
    }
    static void thaw(ff_node* node, bool again) {
        if (node != nullptr) node->thaw(again);
    }
    static int wait(ff_node* node) { return node != nullptr ? node->wait() : 0; }
    static int wait_freezing(ff_node* node) { return node != nullptr ? node->wait_freezing() : 0; }

    // Of the blocks, what expanding them needs.
    static bool wrapped(const ff_pipeline& pipe) { return pipe.wrapped_; }
    static bool wrapped(const ff_a2a& all) { return all.wrapped_; }
    static int in_entries(const block& one) { return one.in_entries_; }
    static int out_entries(const block& one) { return one.out_entries_; }
    static bool fixed_in(const block& one) { return one.fixed_in_; }
    static bool fixed_out(const block& one) { return one.fixed_out_; }
    static bool workers_back(const ff_farm& farm) {
        return farm.workers_back_ || farm.getlb()->masterworker();
    }
    static bool collector_back(const ff_farm& farm) { return farm.collector_back_; }
    static ff_node* collector(const ff_farm& farm) {
        if (!farm.with_collector_) return nullptr;
        return farm.collector_ != nullptr ? farm.collector_ : farm.getgt()->get_filter();
    }
};

}  // namespace ff::detail
