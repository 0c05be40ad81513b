#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <ff/combine.hpp>

#include "access.hpp"
#include "inlet.hpp"

namespace ff::detail {

/// Ends a node of a distributed program whose run has failed, which was told already.
struct run_lost {};

/// The thread of one node: its loop, and how it freezes and ends.
///
/// Owner:   shared by the network, the node and the blocks around it.
/// Threads: the loop on its own; the rest from any.
class runner : public std::enable_shared_from_this<runner> {
public:
    /// What a loop does at the end of an input, and what get_channel_id() means: a node with one
    /// input, one with several outputs or an emitter, one with several inputs or a collector.
    enum class kind { plain, spread, gather };

    explicit runner(ff_node* the_node) : node(the_node) {}
    ~runner();

    /// Before start(), for all threads of a block: from now on others may freeze this one, and wait
    /// for that, though it may begin later than they.
    void announce();
    /// `frozen`: as if a stream had ended, and announce() had been followed by freeze().
    int start(bool frozen = false);
    int wait();
    int wait_freezing();
    void freeze();
    void thaw(bool again);
    void stop();
    bool frozen_asked() const;
    bool done() const;
    /// For destructors: ends a thread that waits for input, or for being thawed.
    void abandon();

    /// After abandon(), for a thread that may wait for room: joins it.
    void end_abandoned();
    /// Its thread is not joined.
    bool begun() const;
    /// Whoever waits for it has waited in vain: it has ended, or never began.
    bool over() const;
    /// wait() will return -1.
    void fail() { failed_ = stream_failed_ = true; }

    bool abandoned() const { return abandoned_; }
    /// Sends what svc() returned.
    void emit(void* item);
    /// What waits on its way to another process leaves now.
    void flush();
    /// Sends `mark` to all outputs, once in a stream.
    void emit_end(void* mark);

    kind how = kind::plain;
    ff_node* node;                      // null: an emitter or collector that passes items on
    std::string group;                  // of a distributed program; empty: none
    int cpu = -1;                       // to be pinned to, whatever its node says
    std::atomic<bool> outdated{false};  // a block around it was changed since
    ff_loadbalancer* lb = nullptr;
    ff_gatherer* gt = nullptr;
    std::shared_ptr<channel> out;  // of a node with one output
    bool multi_in = false;
    bool multi_out = false;
    bool master_worker = false;
    bool skip_first = false;
    bool ordered_worker = false;
    bool notify_once = false;      // eosnotify() once for all inputs
    std::size_t own_feedback = 0;  // outputs that stay before the feedback of outer blocks
    inlet in;
    ssize_t last_forward = -1;  // of an emitter: which input the item in svc() came from
    bell room;
    bell* end_bell = nullptr;  // rung when it has ended
    std::unique_ptr<ff_loadbalancer> own_lb;
    std::unique_ptr<ff_gatherer> own_gt;

    struct timeval started {
    }, stopped{}, work_started{}, work_stopped{};
    std::atomic<std::uint64_t> items{0};
    std::atomic<std::size_t> thread_id{0};

private:
    friend class ::ff::ff_gatherer;
    void main();
    void pin() const;
    void freeze_here(std::unique_lock<std::mutex>& guard);
    void finish();
    void* round();
    void* stream();
    int init();
    void end();
    void end_early(std::size_t inputs);
    void end_failed();
    void* plain_loop();
    bool usual_plain(channel& queue, void*& item, void*& result, std::size_t& sent);
    template <bool Ordered>
    bool usual_items(channel& queue, void*& item, void*& result, std::size_t& sent);
    bool usual_spread(void*& item, void*& result);
    template <typename Next>
    bool usual_inputs(Next next, void*& item, ssize_t& from, void*& result);
    bool usual_gather(void*& item, ssize_t& from, void*& result);
    void read_from(const inlet::input& source);
    std::size_t wait_plain(void** item);
    void* spread_loop();
    void* gather_loop();
    void* call(void* item);
    void send(void* item);
    void call_back_in();
    void call_back_out();
    void sent_on();
    void* svc(void* item);
    void* returned(void* result);
    void* wait_one(ssize_t& channel, bool& forward);
    ssize_t take_feedback(void** item);
    void absorb_ends();
    void notify(ssize_t id);
    void set_channel(ssize_t channel, bool forward);
    ff_minode* inlet_node() const;
    bool active() const { return node == nullptr || access::active(*node); }

    std::atomic<bool> abandoned_{false};
    std::atomic<bool> failed_{false};         // in any stream
    std::atomic<bool> stream_failed_{false};  // in the last one
    std::atomic<bool> woken_{false};          // while it drops items
    ff_minode* inlet_ = nullptr;              // of this stream
    bool calls_back_ = false;                 // callbackIn() and callbackOut() of the node
    bool end_sent_ = false;
    bool lost_ = false;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::thread thread_;
    bool started_ = false;
    bool starts_frozen_ = false;
    bool stop_ = true;
    int freezing_ = 0;  // 1: freezes at the end of the stream; 2: was thawed, and will freeze again
    bool frozen_ = false;
    bool thawed_ = false;
    bool done_ = false;
};

}  // namespace ff::detail
