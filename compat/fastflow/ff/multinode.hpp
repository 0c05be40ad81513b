#pragma once

#include <memory>
#include <vector>

#include <ff/gt.hpp>
#include <ff/lb.hpp>
#include <ff/node.hpp>

namespace ff {

/// A node with several inputs.
class ff_minode : public ff_node {
public:
    explicit ff_minode(int max_num_workers = DEF_MAX_NUM_WORKERS, bool calls_back = FF_CALLS_BACK);
    ff_minode(const ff_minode& other);
    ~ff_minode() override;

    bool isMultiInput() const override { return true; }
    /// False: the item came back over a feedback channel.
    bool fromInput() const { return from_input_; }
    /// The input the item came from: forward and feedback channels are counted apart, each from 0.
    ssize_t get_channel_id() const override { return channel_; }
    /// All inputs, those of feedback included; of an emitter only forward ones.
    size_t get_num_inchannels() const override;
    size_t get_num_outchannels() const override;
    size_t get_num_feedbackchannels() const override;
    ssize_t get_neos() const override { return static_cast<ssize_t>(get_num_inchannels()); }
    ff_gatherer* getgt() const { return gt_; }
    /// Before a run: inputs of a program's own class, which replace ours. Not of a collector: its
    /// farm has them.
    void setgt(ff_gatherer* gt, bool cleanup = false);
    /// As its gatherer's.
    int all_gather(void* task, void** items);

    void skipfirstpop(bool skip) override;
    using ff_node::run;
    using ff_node::run_then_freeze;
    using ff_node::skipfirstpop;
    using ff_node::wait;
    using ff_node::wait_freezing;

private:
    friend struct detail::access;

    ssize_t channel_ = -1;
    bool from_input_ = true;
    std::shared_ptr<ff_gatherer> own_;
    ff_gatherer* gt_;
};

/// A node with several outputs.
class ff_monode : public ff_node {
public:
    explicit ff_monode(int max_num_workers = DEF_MAX_NUM_WORKERS, bool calls_back = FF_CALLS_BACK);
    ff_monode(const ff_monode& other);
    ~ff_monode() override;

    bool isMultiOutput() const override { return true; }
    /// Feedback channels come first, then forward ones.
    virtual bool ff_send_out_to(void* task, int id,
                                unsigned long retry = static_cast<unsigned long>(-1),
                                unsigned long ticks = TICKS2WAIT);
    /// To the next channel that has room; with feedback, to feedback channels only.
    bool ff_send_out(void* task, int id = -1, unsigned long retry = static_cast<unsigned long>(-1),
                     unsigned long ticks = TICKS2WAIT) override;
    void broadcast_task(void* task);
    int get_next_free_channel(bool forever = true) { return lb_->get_next_free_channel(forever); }
    void set_scheduling_ondemand(int entries = 1) override {
        ondemand_ = entries < 1 ? 1 : entries;
    }
    int ondemand_buffer() const override { return ondemand_; }
    ssize_t get_channel_id() const override { return lb_->get_channel_id(); }
    size_t get_num_inchannels() const override { return lb_->get_num_inchannels(); }
    /// All outputs, those of feedback included.
    size_t get_num_outchannels() const override { return lb_->get_num_outchannels(); }
    size_t get_num_feedbackchannels() const override { return lb_->get_num_feedbackchannels(); }
    ff_loadbalancer* getlb() const { return lb_; }
    /// Before a run: outputs of a program's own class, which replace ours. Not of an emitter: its
    /// farm has them.
    void setlb(ff_loadbalancer* lb, bool cleanup = false);
    using ff_node::run;
    using ff_node::skipfirstpop;
    using ff_node::wait;
    void get_out_nodes(svector<ff_node*>& nodes) override;
    void get_out_nodes_feedback(svector<ff_node*>& nodes) override;

private:
    friend struct detail::access;
    void show(svector<ff_node*>& nodes, bool feedback);

    std::shared_ptr<ff_loadbalancer> own_;
    ff_loadbalancer* lb_;
    int ondemand_ = 0;
};

/// What the typed nodes have in common: marks of the type of their output.
#define FF_TYPED_MARKS(Out)                                       \
    Out* const GO_ON = static_cast<Out*>(FF_GO_ON);               \
    Out* const EOS = static_cast<Out*>(FF_EOS);                   \
    Out* const EOSW = static_cast<Out*>(FF_EOSW);                 \
    Out* const GO_OUT = static_cast<Out*>(FF_GO_OUT);             \
    Out* const EOS_NOFREEZE = static_cast<Out*>(FF_EOS_NOFREEZE); \
    Out* const FLUSH = static_cast<Out*>(FF_FLUSH);               \
    Out* const BLK = static_cast<Out*>(FF_BLK);                   \
    Out* const NBLK = static_cast<Out*>(FF_NBLK)

template <typename In, typename Out = In>
struct ff_minode_t : ff_minode {
    using in_type = In;
    using out_type = Out;
    ff_minode_t() { FF_TYPED_CODEC(In, Out); }
    ff_minode_t(const ff_minode_t& other) : ff_minode(other) {}
    FF_TYPED_MARKS(Out);

    virtual Out* svc(In*) = 0;
    void* svc(void* task) override { return svc(static_cast<In*>(task)); }
    int all_gather(In* task, std::vector<In*>& items) {
        const size_t all = this->get_num_inchannels();
        const size_t feedback = this->get_num_feedbackchannels();
        items.assign(all > feedback ? all - feedback : 0, nullptr);
        return ff_minode::all_gather(task, reinterpret_cast<void**>(items.data()));
    }
};

template <typename In, typename Out = In>
struct ff_monode_t : ff_monode {
    using in_type = In;
    using out_type = Out;
    ff_monode_t() { FF_TYPED_CODEC(In, Out); }
    ff_monode_t(const ff_monode_t& other) : ff_monode(other) {}
    FF_TYPED_MARKS(Out);

    virtual Out* svc(In*) = 0;
    void* svc(void* task) override { return svc(static_cast<In*>(task)); }
};

}  // namespace ff
