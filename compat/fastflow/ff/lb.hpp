#pragma once

#include <deque>
#include <iosfwd>
#include <memory>
#include <vector>

#include <ff/node.hpp>

namespace ff {
namespace detail {
class turn_order;
}

/// The outputs of a farm's emitter or of a node with several outputs, and who gets an item.
///
/// A program may derive from it, override selectworker(), callback(), svc_init() or svc_end(), and
/// give it to ff_farm::setlb() or ff_monode::setlb().
/// Threads: as the node whose outputs these are; what waits or freezes may be called by others.
/// Cost:    an item that any may have costs a virtual call more than one sent to a channel.
class ff_loadbalancer {
public:
    enum { TICKS2WAIT = 1000 };

    explicit ff_loadbalancer(size_t max_num_workers = DEF_MAX_NUM_WORKERS)
        : max_(max_num_workers) {}
    ff_loadbalancer(const ff_loadbalancer&) = delete;
    ff_loadbalancer& operator=(const ff_loadbalancer&) = delete;
    virtual ~ff_loadbalancer();

    /// Of the item in svc(): the worker or feedback channel it came back from; -1 from the stage
    /// before; -2 before there was one.
    ssize_t get_channel_id() const { return channel_; }
    void reset_channel_id() { channel_ = -2; }
    size_t get_num_inchannels() const;  ///< Without those of feedback, but with the manager's.
    size_t get_num_outchannels() const { return outs_.size(); }  ///< With those of feedback.
    size_t get_num_feedbackchannels() const { return feedback_; }
    size_t getnworkers() const { return running_; }
    size_t getNWorkers() const { return outs_.size(); }
    const svector<ff_node*>& getWorkers() const { return targets_; }
    ff_node* get_filter() const { return filter_; }
    bool masterworker() const { return master_worker_; }
    int getTid(ff_node* node) const;

    virtual bool ff_send_out_to(void* task, int id,
                                unsigned long retry = static_cast<unsigned long>(-1),
                                unsigned long ticks = TICKS2WAIT);
    virtual void broadcast_task(void* task);
    /// As ff_gatherer's.
    int all_gather(void* task, void** items);
    /// The next channel with room; -1 if there is none and `forever` is false.
    int get_next_free_channel(bool forever = true);
    /// A further input, which the program writes to.
    void addManagerChannel(ff_node* channel) { manager_ = channel; }

    /// The start and end of a stream, on the emitter's thread: as the emitter's. Below 0: it has
    /// ended the stream.
    virtual int svc_init();
    virtual void svc_end();
    /// The workers' outputs go back to the emitter, as after ff_farm::wrap_around(). -1: they do
    /// already.
    int set_masterworker();
    // Accepted, and without effect: as ff_node's. Each run says itself who begins without an item.
    void no_mapping() {}
    void blocking_mode(bool = true) {}
    void skipfirstpop(bool) {}

    /// Start the emitter's thread, and those of the first `workers`. -1: a block that is not
    /// prepared, or runs, or there are no threads to be had.
    int runlb(bool = false, ssize_t workers = -1);
    int runWorkers(ssize_t workers = -1);
    virtual int run(bool = false);
    void freeze();
    void freeze(size_t worker);
    void freezeWorkers();
    virtual void thaw(bool freeze = false, ssize_t workers = -1);
    void thaw(size_t worker, bool freeze = false);
    virtual int thawWorkers(bool freeze = false, ssize_t workers = -1);
    virtual int wait_freezing();
    int wait_freezing(size_t worker);
    int wait_lb_freezing();
    int wait_freezingWorkers();
    int waitlb();
    int waitWorkers();
    virtual int wait();
    void stop();
    bool isfrozen() const;
    bool done() const;

    virtual double ffTime();
    virtual double wffTime();
    virtual void ffStats(std::ostream& out);

protected:
    /// Which channel to try next.
    virtual size_t selectworker() {
        const size_t next = next_ + 1;
        return next_ = next < running_ ? next : 0;
    }
    /// Of a program's own class: a worker was chosen for `task`, and has room. The result of the
    /// second, which is called after the first, is sent in its place.
    virtual void callback(int /*worker*/) {}
    virtual void* callback(int /*worker*/, void* task) { return task; }
    /// Of programs that define FF_TASK_CALLBACK: ff_node's, of the emitter.
    virtual void callbackIn(void* lb = nullptr);
    virtual void callbackOut(void* lb = nullptr);
    /// How many to try before waiting for room.
    virtual size_t nattempts() { return running_; }
    virtual bool schedule_task(void* task, unsigned long retry = static_cast<unsigned long>(-1),
                               unsigned long ticks = TICKS2WAIT);

private:
    friend struct detail::access;
    friend class detail::runner;

    bool put(size_t at, void* task, unsigned long retry);
    bool select();
    void begin_stream();
    size_t how_many(ssize_t workers) const;
    bool announce_workers();
    bool put_told(size_t at, void* task, unsigned long retry);
    /// Of those that were full just now.
    bool any_room() const;
    /// `task` to every channel that is there, feedback and forward.
    void end(void* task);
    ff_node* worker(size_t at) const { return at < targets_.size() ? targets_[at] : nullptr; }

    std::vector<std::shared_ptr<FFBUFFER>> outs_;  // feedback first
    svector<ff_node*> targets_;
    std::vector<std::unique_ptr<ff_buffernode>> shown_;  // outs_ as nodes
    size_t max_;
    size_t running_ = 0;
    size_t next_ = static_cast<size_t>(-1);
    size_t feedback_ = 0;
    ssize_t channel_ = -2;
    bool master_worker_ = false;
    bool calls_back_ = false;
    bool calls_back_out_ = false;  // callbackOut()
    bool usual_ = false;           // nobody has overridden who is next
    ff_node* filter_ = nullptr;
    ff_node* manager_ = nullptr;
    std::shared_ptr<detail::runner> thread_;
    std::shared_ptr<detail::turn_order> order_;  // of an ordered farm
    bool turns_ended_ = false;                   // in this stream
    std::vector<size_t> later_;
};

}  // namespace ff
