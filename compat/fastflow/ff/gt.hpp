#pragma once

#include <iosfwd>
#include <memory>
#include <vector>

#include <ff/node.hpp>

namespace ff {

/// The inputs of a farm's collector or of a node with several inputs, and which is read next.
///
/// A program may derive from it, override selectworker(), and give it to ff_farm::setgt().
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
    size_t get_num_inchannels() const;
    size_t get_num_outchannels() const;
    size_t get_num_feedbackchannels() const;
    size_t getnworkers() const;  ///< Inputs that have not ended.
    size_t getrunning() const { return running_; }
    size_t getNWorkers() const { return get_num_inchannels() + get_num_feedbackchannels(); }
    ff_node* get_filter() const { return filter_; }
    /// One item from each input that has not ended, beside `task`; waits. -1: one ended.
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
    bool usual_ = false;  // nobody has overridden which input is next
    ff_node* filter_ = nullptr;
    std::shared_ptr<detail::runner> thread_;
    std::vector<size_t> tried_;
};

}  // namespace ff
