#pragma once

#include <atomic>
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include <ff/barrier.hpp>
#include <ff/buffer.hpp>
#include <ff/config.hpp>
#include <ff/distributed/group.hpp>
#include <ff/distributed/message.hpp>
#include <ff/mapper.hpp>
#include <ff/opt_level.hpp>
#include <ff/svector.hpp>
#include <ff/thread.hpp>
#include <ff/utils.hpp>

// Typed nodes of distributed programs know how their items travel.
#if defined(DFF_ENABLED)
#include <ff/distributed/codec.hpp>
#define FF_TYPED_CODEC(In, Out) ::ff::detail::use_codec<In, Out>(static_cast<::ff::ff_node&>(*this))
#else
#if !defined(DISABLE_FF_DISTRIBUTED)
#define FF_NODE_WITHOUT_DFF
#endif
#define FF_TYPED_CODEC(In, Out) static_cast<void>(0)
#endif

// A program that defines FF_TASK_CALLBACK has its nodes' callbackIn() and callbackOut() called.
#if defined(FF_TASK_CALLBACK)
#define FF_CALLS_BACK true
#else
#define FF_CALLS_BACK false
#endif

namespace ff {

class ff_node;
class ff_loadbalancer;
class ff_gatherer;

namespace detail {
struct access;
class runner;
class network;
}  // namespace detail

/// A building block: a node with a svc() of its own, or a pipeline, farm, all-to-all or combination
/// of others.
///
/// Owner:   the program owns nodes and items; a block deletes the nodes that it was told to clean
/// up. Threads: set up, run and wait by one thread. svc_init(), svc(), svc_end() and eosnotify()
/// are
///          called by the node's own thread, and so is everything a node may call on itself.
/// Failure: functions that return int return -1, with a sentence on stderr. A svc_init() below 0,
/// or
///          an exception out of a node's function, ends that node as if it had returned EOS, and
///          wait() returns -1. Where nodes freeze, wait_freezing() does so for that stream, and the
///          node takes part in the next.
/// Cost:    a thread for each node.
class ff_node {
public:
    enum { TICKS2WAIT = 1000 };
    using send_callback = bool (*)(void*, int, unsigned long, unsigned long, void*);

    void* const GO_ON = FF_GO_ON;                ///< Nothing to send; call svc() again.
    void* const GO_OUT = FF_GO_OUT;              ///< Ends this node, and tells nobody.
    void* const EOS_NOFREEZE = FF_EOS_NOFREEZE;  ///< As GO_OUT; the node does not freeze, either.
    void* const EOS = FF_EOS;                    ///< End of stream. A null pointer is the same.
    void* const EOSW = FF_EOSW;                  ///< End of stream for the workers of a farm only.
    void* const FLUSH = FF_FLUSH;
    void* const BLK = FF_BLK;    ///< Has no effect: waiting threads always sleep in the end.
    void* const NBLK = FF_NBLK;  ///< The same.

    ff_node(const ff_node&);
    ff_node& operator=(const ff_node&) = delete;
    virtual ~ff_node();

    /// One item in, one out. `task` is null for a node without input, and in the first call of a
    /// node that starts a loop.
    virtual void* svc(void* task) = 0;
    virtual int svc_init() { return 0; }
    virtual void svc_end() {}
    virtual int nodeInit() { return 0; }
    virtual void nodeEnd() {}
    /// An input ended. `id` is its channel, where the node has several.
    virtual void eosnotify(ssize_t /*id*/ = -1) {}

    /// False: the queue has a fixed size and was full in each of `retry` attempts, `task` is null,
    /// or the node has no output.
    virtual bool ff_send_out(void* task, int id = -1,
                             unsigned long retry = static_cast<unsigned long>(-1),
                             unsigned long ticks = TICKS2WAIT);

    virtual ssize_t get_my_id() const { return id_; }
    size_t getOSThreadId() const;
    virtual ssize_t get_channel_id() const { return -1; }
    virtual size_t get_num_inchannels() const;
    virtual size_t get_num_outchannels() const;
    virtual size_t get_num_feedbackchannels() const { return 0; }
    virtual ssize_t get_neos() const { return 1; }

    virtual bool isMultiInput() const { return false; }
    virtual bool isMultiOutput() const { return false; }
    virtual bool isAll2All() const { return false; }
    virtual bool isFarm() const { return false; }
    virtual bool isOFarm() const { return false; }
    virtual bool isComp() const { return false; }
    virtual bool isPipe() const { return false; }

    /// Like the other functions that change a block, before it runs, or for its next run or thaw.
    virtual bool change_node(ff_node* /*old*/, ff_node* /*with*/, bool /*cleanup*/ = false,
                             bool /*forget*/ = false) {
        return false;
    }
    /// Fixes the size of the queue into or out of this node. False: there is none.
    virtual bool change_inputqueuesize(size_t entries, size_t& former);
    virtual bool change_outputqueuesize(size_t entries, size_t& former);
    /// The nodes at the ends of a block. While it runs, those of a node with several outputs are
    /// its queues.
    virtual void get_out_nodes(svector<ff_node*>& nodes) { nodes.push_back(this); }
    virtual void get_out_nodes_feedback(svector<ff_node*>&) {}
    virtual void get_in_nodes(svector<ff_node*>& nodes) { nodes.push_back(this); }
    virtual void get_in_nodes_feedback(svector<ff_node*>&) {}
    virtual FFBUFFER* get_in_buffer() const;
    virtual FFBUFFER* get_out_buffer() const;

    /// From the next run on, the node's thread runs on that processor only, or with -1 on any.
    /// Threads of other nodes are not pinned. In a combination, only its own counts.
    virtual void setAffinity(int cpu) { cpu_ = cpu; }
    virtual int getCPUId() const { return cpu_; }
    // Accepted, and without effect: Amalgam's waits always sleep in the end.
    virtual void blocking_mode(bool = true) {}
    virtual void no_barrier() {}
    virtual void no_mapping() {}
    virtual void set_scheduling_ondemand(int = 1) {}
    virtual int ondemand_buffer() const { return 0; }
    virtual void reset() {}
    virtual void set_multiinput() {}

    /// Threads that the block needs.
    virtual int cardinality() const { return 1; }
    /// Milliseconds from the first svc_init() to the last svc_end(), and the same without them.
    virtual double ffTime();
    virtual double wffTime();
    double ffwTime() { return wffTime(); }
    virtual const struct timeval getstarttime() const;
    virtual const struct timeval getstoptime() const;
    virtual const struct timeval getwstartime() const;
    virtual const struct timeval getwstoptime() const;
    /// A line for each thread: its items and its time. Any thread, at any time.
    virtual void ffStats(std::ostream& out);

    virtual bool isfrozen() const;
    /// All threads have ended, or are frozen.
    virtual bool done() const;

    /// Puts this block, with all that is in it, into a new group of a distributed program. `host`
    /// is what --DFF_dryrun writes.
    GroupInterface createGroup(const std::string& name, const std::string& host = "");
    // How items leave for another group, and come from one. Typed nodes of programs with
    // ff/dff.hpp set all four; a program may set others.
    detail::serialize_function serializeF;
    std::function<void(void*)> freetaskF;
    detail::deserialize_function deserializeF;
    std::function<void*(char*, size_t)> alloctaskF;
    virtual bool isSerializable() { return static_cast<bool>(serializeF); }
    virtual bool isDeserializable() { return static_cast<bool>(deserializeF); }

    /// Of programs that define FF_TASK_CALLBACK: before each svc(), and after each item or mark
    /// that was sent; for one that a node with one input returns, twice, as FastFlow does. An
    /// emitter or a node with several outputs gets its load balancer. A collector or a node with
    /// several inputs gets its gatherer by callbackIn(), and by callbackOut() if it has no output:
    /// then that is called after each svc() with a result. Others get a null pointer.
    virtual void callbackIn(void* = nullptr) {}
    virtual void callbackOut(void* = nullptr) {}

protected:
    explicit ff_node(bool calls_back = FF_CALLS_BACK);

    virtual void set_id(ssize_t id) { id_ = id; }
    /// False: takes no items from the stage before for now, only from feedback. svc() is called
    /// with a null pointer from time to time meanwhile.
    virtual void input_active(bool on);
    virtual void registerCallback(send_callback callback, void* argument) {
        callback_ = callback;
        callback_argument_ = argument;
    }
    /// The first call of svc() takes nothing from the input. Each run says itself which nodes those
    /// are, but for collectors and for nodes of an all-to-all's second set that have several
    /// inputs.
    virtual void skipfirstpop(bool skip) { skip_first_ = skip; }
    bool skipfirstpop() const { return skip_first_; }

    /// Starts the block's threads.
    virtual int run(bool = false);
    /// Waits for their end. Frozen ones end, too.
    virtual int wait();
    virtual int run_and_wait_end();
    /// Threads that reach the end of their stream freeze instead of ending; a second call thaws
    /// them for the next stream.
    virtual int run_then_freeze(ssize_t workers = -1);
    virtual int freeze_and_run(bool = false) { return run_then_freeze(); }
    virtual int wait_freezing();
    virtual void freeze();
    virtual void thaw(bool freeze = false, ssize_t workers = -1);
    virtual void stop();
    virtual int prepare();
    virtual int dryrun() { return prepare(); }

    virtual bool Push(void* task, unsigned long retry = static_cast<unsigned long>(-1),
                      unsigned long = TICKS2WAIT) {
        return ff_node::ff_send_out(task, -1, retry);
    }
    /// Ends the threads of an outermost block: before the nodes go that it owns.
    void end_threads() { network_.reset(); }
    void end_begun();
    /// Before frozen threads go on. Those of a block that was changed are made anew, and begin
    /// frozen. False: they cannot be, and why is on stderr.
    bool renew();

    bool has_input_channel_ = false;

private:
    friend struct detail::access;
    bool send_out(void* task, int id, unsigned long retry, unsigned long ticks);
    bool push_out(void* task, unsigned long retry);
    bool expand();

    ssize_t id_ = -1;
    int cpu_ = -1;
    bool skip_first_ = false;
    bool in_active_ = true;
    bool calls_back_;             // callbackIn() and callbackOut()
    FFBUFFER* direct_ = nullptr;  // the one queue of a node that has one output
    send_callback callback_ = nullptr;
    void* callback_argument_ = nullptr;
    std::vector<std::shared_ptr<detail::runner>> threads_;  // of the whole block
    std::shared_ptr<detail::network> network_;              // of the outermost block
};

/// A node whose items have types.
template <typename In, typename Out = In>
struct ff_node_t : ff_node {
    using in_type = In;
    using out_type = Out;
    using ff_node::ff_send_out;
    using ff_node::registerCallback;

    ff_node_t() { FF_TYPED_CODEC(In, Out); }
    ff_node_t(const ff_node_t& other) : ff_node(other) {}
    Out* const GO_ON = static_cast<Out*>(FF_GO_ON);
    Out* const EOS = static_cast<Out*>(FF_EOS);
    Out* const EOSW = static_cast<Out*>(FF_EOSW);
    Out* const GO_OUT = static_cast<Out*>(FF_GO_OUT);
    Out* const EOS_NOFREEZE = static_cast<Out*>(FF_EOS_NOFREEZE);
    Out* const FLUSH = static_cast<Out*>(FF_FLUSH);
    Out* const BLK = static_cast<Out*>(FF_BLK);
    Out* const NBLK = static_cast<Out*>(FF_NBLK);

    virtual Out* svc(In*) = 0;
    void* svc(void* task) override {
        return const_cast<std::remove_const_t<Out>*>(svc(static_cast<In*>(task)));
    }
};

/// A node of a function: Out* (In*, ff_node* self).
template <typename In, typename Out = In,
          typename Function = std::function<Out*(In*, ff_node* const)>>
struct ff_node_F : ff_node_t<In, Out> {
    explicit ff_node_F(Function function) : F(std::move(function)) {}
    Out* svc(In* task) override { return F(task, this); }
    Function F;
};

/// A queue that stands as a node, for programs that connect things by hand.
class ff_buffernode : public ff_node {
public:
    ff_buffernode() = default;
    explicit ff_buffernode(int entries, bool fixed = FF_FIXED_SIZE, int id = -1) {
        set(entries, fixed, id);
    }
    explicit ff_buffernode(std::shared_ptr<FFBUFFER> queue) : queue_(std::move(queue)) {}

    void set(int entries, bool fixed = FF_FIXED_SIZE, int id = -1, int = -1);
    int init_blocking_stuff() { return 0; }
    void reset_blocking_out() {}
    bool ff_send_out(void* task, int = -1, unsigned long retry = static_cast<unsigned long>(-1),
                     unsigned long = TICKS2WAIT) override;
    /// Waits for an item; with `retry`, tries so many times.
    bool gather_task(void** task, unsigned long retry = static_cast<unsigned long>(-1),
                     unsigned long = TICKS2WAIT);
    template <typename T>
    bool gather_task(T*& task, unsigned long retry = static_cast<unsigned long>(-1),
                     unsigned long ticks = TICKS2WAIT) {
        return gather_task(reinterpret_cast<void**>(&task), retry, ticks);
    }
    bool put(void* task) { return queue_->try_push(task); }
    bool get(void** task) { return queue_->try_pop(task); }
    bool change_inputqueuesize(size_t entries, size_t& former) override;
    bool change_outputqueuesize(size_t entries, size_t& former) override {
        return change_inputqueuesize(entries, former);
    }
    FFBUFFER* get_in_buffer() const override { return queue_.get(); }
    FFBUFFER* get_out_buffer() const override { return queue_.get(); }
    const std::shared_ptr<FFBUFFER>& queue() const { return queue_; }

protected:
    void* svc(void*) override { return nullptr; }

private:
    std::shared_ptr<FFBUFFER> queue_;
};

}  // namespace ff
