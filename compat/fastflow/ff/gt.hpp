#pragma once

#include <iosfwd>
#include <memory>
#include <vector>

#include <ff/node.hpp>

namespace ff {

/// The inputs of a farm's collector or of a node with several inputs, and which is read next.
///
/// A program may derive from it, override selectworker(), notifyeos(), svc_init() or svc_end(), and
/// give it to ff_farm::setgt() or ff_minode::setgt().
/// Threads: as the node whose inputs these are.
class ff_gatherer {
public:
    enum { TICKS2WAIT = 5000 };

    explicit ff_gatherer(int max_num_workers = DEF_MAX_NUM_WORKERS) : max_(max_num_workers) {}
    ff_gatherer(const ff_gatherer&) = delete;
    ff_gatherer& operator=(const ff_gatherer&) = delete;
    virtual ~ff_gatherer();

    ssize_t get_channel_id() const { return channel_; }
    bool fromInput() const { return from_input_; }
    /// All inputs of this stream, those of feedback included. Of an emitter: only forward ones.
    size_t get_num_inchannels() const;
    size_t get_num_outchannels() const;
    size_t get_num_feedbackchannels() const;
    size_t getnworkers() const;  ///< Inputs that have not ended.
    size_t getrunning() const { return get_num_inchannels(); }
    size_t getNWorkers() const;  ///< Inputs, also those that have no part in this stream.
    ff_node* get_filter() const { return filter_; }
    /// The collector, of a farm that has one and was given none. -1: there is one.
    int set_filter(ff_node* collector);
    /// The start and end of a stream, on the collector's thread: as the collector's. Below 0: it
    /// has ended the stream.
    virtual int svc_init();
    virtual void svc_end();
    /// The collector's first call of svc() takes nothing from its inputs.
    void skipfirstpop(bool skip = true) { skip_first_ = skip; }
    // Accepted, and without effect: as ff_node's.
    void no_mapping() {}
    void blocking_mode(bool = true) {}
    /// One item from each forward input that has not ended, beside `task`, in the order of their
    /// channels; waits. -1: one ended, or `task` came over a feedback channel, and none was taken.
    virtual int all_gather(void* task, void** items);
    void freeze();
    void thaw(bool freeze = false, ssize_t workers = -1);
    void stop();
    int wait_freezing();
    int wait();
    virtual double ffTime();
    virtual double wffTime();
    virtual void ffStats(std::ostream& out);

protected:
    virtual ssize_t selectworker();
    /// An input has ended, which was the `id`th of its kind: forward, or feedback.
    virtual void notifyeos(int /*id*/) {}
    virtual size_t nattempts() { return getnworkers(); }
    /// Waits for an item; returns the input it came from.
    virtual ssize_t gather_task(void** task);

private:
    friend struct detail::access;
    friend class detail::runner;

    void begin_stream();
    ssize_t gather_in_turn(void** task);
    size_t select();

    int max_;
    size_t running_ = 0;
    ssize_t next_ = -1;
    ssize_t channel_ = -1;
    bool from_input_ = true;
    bool skip_first_ = false;
    bool usual_ = false;  // nobody has overridden which input is next
    ff_node* filter_ = nullptr;
    std::shared_ptr<detail::runner> thread_;
    std::vector<size_t> tried_;
};

}  // namespace ff
