#include <ostream>

#include "network.hpp"

namespace ff {

using detail::network;
using detail::runner;

ff_node::ff_node(bool calls_back) : calls_back_(calls_back) {}
// A copy is a node of its own: it has neither the threads nor the place of the other.
ff_node::ff_node(const ff_node& other)
    : serializeF(other.serializeF),
      freetaskF(other.freetaskF),
      deserializeF(other.deserializeF),
      alloctaskF(other.alloctaskF),
      has_input_channel_(other.has_input_channel_),
      cpu_(other.cpu_),
      calls_back_(other.calls_back_) {}
ff_node::~ff_node() = default;

bool ff_node::ff_send_out(void* task, int id, unsigned long retry, unsigned long ticks) {
    if (task != nullptr && callback_ == nullptr && direct_ != nullptr && retry != 0 &&
        !calls_back_ && direct_->simple())
        return direct_->push_simple(task);
    return send_out(task, id, retry, ticks);
}

/// When it may wait, nothing is there to send to, or callbackOut() is to be called.
bool ff_node::send_out(void* task, int id, unsigned long retry, unsigned long ticks) {
    if (task == nullptr) return false;
    if (callback_ != nullptr) return callback_(task, id, retry, ticks, callback_argument_);
    if (direct_ == nullptr) return false;
    if (!push_out(task, retry)) return false;
    if (calls_back_) callbackOut();
    return true;
}
bool ff_node::push_out(void* task, unsigned long retry) {
    if (retry == static_cast<unsigned long>(-1)) {
        direct_->push(task);
        return true;
    }
    for (; retry != 0; --retry) {
        if (direct_->try_push(task)) return true;
        sched_yield();
    }
    return false;
}

size_t ff_node::getOSThreadId() const {
    return threads_.empty() ? 0 : threads_.front()->thread_id.load();
}
size_t ff_node::get_num_inchannels() const {
    return 0;
}
size_t ff_node::get_num_outchannels() const {
    return 0;
}

FFBUFFER* ff_node::get_in_buffer() const {
    if (threads_.empty() || threads_.front()->in.inputs.empty()) return nullptr;
    return threads_.front()->in.inputs.back().queue.get();
}
FFBUFFER* ff_node::get_out_buffer() const {
    return threads_.empty() ? direct_ : threads_.back()->out.get();
}
bool ff_node::change_inputqueuesize(size_t entries, size_t& former) {
    FFBUFFER* queue = get_in_buffer();
    former = queue != nullptr ? queue->changesize(entries) : 0;
    return queue != nullptr;
}
bool ff_node::change_outputqueuesize(size_t entries, size_t& former) {
    FFBUFFER* queue = get_out_buffer();
    former = queue != nullptr ? queue->changesize(entries) : 0;
    return queue != nullptr;
}

void ff_node::input_active(bool on) {
    in_active_ = on;
}

int ff_node::prepare() {
    const bool expands = network_ == nullptr || (network_->outdated() && !network_->begun());
    return !expands || expand() ? 0 : -1;
}

bool ff_node::expand() {
    const auto former = std::move(network_);
    network_ = detail::expand(*this, has_input_channel_);
    if (network_ != nullptr && former != nullptr) network_->take_over(*former);
    return network_ != nullptr;
}

bool ff_node::renew() {
    if (network_ == nullptr || !network_->outdated() || !done()) return true;
    if (!expand()) return false;
    for (const auto& thread : threads_) {
        thread->freeze();
        thread->announce();
    }
    for (const auto& thread : threads_) {
        if (thread->start(true) == 0) continue;
        end_begun();
        return false;
    }
    return true;
}

int ff_node::run(bool) {
    if (prepare() < 0) return -1;
    for (const auto& thread : threads_)
        if (thread->begun()) return -1;
    for (const auto& thread : threads_)
        thread->announce();
    for (const auto& thread : threads_) {
        if (thread->start() == 0) continue;
        end_begun();
        return -1;
    }
    return 0;
}

/// Not all threads could be started: those that were end, and nobody waits for the others.
void ff_node::end_begun() {
    for (const auto& thread : threads_)
        thread->abandon();
    for (const auto& thread : threads_)
        for (const auto& each : thread->in.inputs)
            each.queue->close();
    for (const auto& thread : threads_) {
        thread->end_abandoned();
        thread->fail();
    }
}

int ff_node::wait() {
    int result = 0;
    for (const auto& thread : threads_)
        if (thread->wait() < 0) result = -1;
    return result;
}

int ff_node::run_and_wait_end() {
    int result = -1;
    if (detail::distributed_run != nullptr && detail::distributed_run(*this, result)) return result;
    stop();
    if (isfrozen()) {
        thaw();
    } else if (run() < 0) {
        return -1;
    }
    return wait();
}

int ff_node::run_then_freeze(ssize_t workers) {
    if (isfrozen()) {
        if (!renew()) return -1;
        thaw(true, workers);
        return 0;
    }
    if (prepare() < 0) return -1;
    for (const auto& thread : threads_)
        thread->freeze();
    return run();
}

int ff_node::wait_freezing() {
    int result = 0;
    for (const auto& thread : threads_)
        if (thread->wait_freezing() < 0) result = -1;
    return result;
}
void ff_node::freeze() {
    for (const auto& thread : threads_)
        thread->freeze();
}
void ff_node::thaw(bool again, ssize_t) {
    if (!renew()) return;
    for (const auto& thread : threads_)
        thread->thaw(again);
}
void ff_node::stop() {
    for (const auto& thread : threads_)
        thread->stop();
}
bool ff_node::isfrozen() const {
    for (const auto& thread : threads_)
        if (!thread->frozen_asked()) return false;
    return !threads_.empty();
}
bool ff_node::done() const {
    for (const auto& thread : threads_)
        if (!thread->done()) return false;
    return true;
}

namespace {

/// The first or last of the threads' moments that `which` names.
timeval moment(const std::vector<std::shared_ptr<runner>>& threads, timeval runner::*which,
               bool last) {
    timeval found{0, 0};
    for (const auto& thread : threads) {
        const timeval& at = (*thread).*which;
        if (time_iszero(at)) continue;
        if (time_iszero(found) || time_compare(found, at) == last) found = at;
    }
    return found;
}

}  // namespace

const timeval ff_node::getstarttime() const {
    return moment(threads_, &runner::started, false);
}
const timeval ff_node::getstoptime() const {
    return moment(threads_, &runner::stopped, true);
}
const timeval ff_node::getwstartime() const {
    return moment(threads_, &runner::work_started, false);
}
const timeval ff_node::getwstoptime() const {
    return moment(threads_, &runner::work_stopped, true);
}
double ff_node::ffTime() {
    return diffmsec(getstoptime(), getstarttime());
}
double ff_node::wffTime() {
    return diffmsec(getwstoptime(), getwstartime());
}
void ff_node::ffStats(std::ostream& out) {
    for (const auto& thread : threads_)
        detail::print_stats(*thread, out);
}

void ff_buffernode::set(int entries, bool fixed, int id, int) {
    if (entries < 1) {
        error("ff_buffernode: a queue of %d entries, expected 1 or more\n", entries);
        return;
    }
    set_id(id);
    queue_ = std::make_shared<FFBUFFER>(static_cast<size_t>(entries), fixed);
}
bool ff_buffernode::ff_send_out(void* task, int, unsigned long retry, unsigned long) {
    if (task == nullptr || queue_ == nullptr) return false;
    if (retry == static_cast<unsigned long>(-1)) {
        queue_->push(task);
        return true;
    }
    for (; retry != 0; --retry)
        if (queue_->try_push(task)) return true;
    return false;
}
bool ff_buffernode::gather_task(void** task, unsigned long retry, unsigned long) {
    if (queue_ == nullptr) return false;
    for (; retry != 0; --retry) {
        if (queue_->try_pop(task)) return true;
        if (retry > 1UL << 32) queue_->wait_item();
    }
    return false;
}
bool ff_buffernode::change_inputqueuesize(size_t entries, size_t& former) {
    former = queue_ != nullptr ? queue_->changesize(entries) : 0;
    return queue_ != nullptr;
}

namespace detail {

bool (*distributed_run)(ff_node& whole, int& result) = nullptr;

bool announce_threads(ff_node& node) {
    for (const auto& thread : access::threads(node)) {
        if (thread->begun()) return false;
        thread->announce();
    }
    return true;
}
bool start_threads(ff_node& node, bool frozen) {
    for (const auto& thread : access::threads(node)) {
        if (frozen) thread->freeze();
        if (thread->start() < 0) return false;
    }
    return true;
}

int gather_all(runner& thread, void* task, void** items) {
    inlet& in = thread.in;
    const came_from from = gathered_from(thread);
    if (from.feedback) {
        error(
            "all_gather: the item came over feedback channel %zd, expected one of a forward input: "
            "ask fromInput() or get_channel_id() first\n",
            from.channel);
        return -1;
    }
    int result = 0;
    const std::size_t first = in.count(true);
    const std::size_t all =
        thread.gt != nullptr ? thread.gt->get_num_inchannels() : in.inputs.size();
    for (std::size_t at = first; at < all; ++at) {
        inlet::input& each = in.inputs[at];
        void*& item = items[at - first];
        if (static_cast<ssize_t>(at - first) == from.channel) {
            item = task;
            continue;
        }
        item = nullptr;
        if (each.ended) continue;
        in.news.sleep_until([&] { return !each.queue->empty() || thread.abandoned(); });
        if (!each.queue->try_pop(&item)) continue;
        if (item == FF_EOS || item == FF_EOSW || item == FF_EOS_NOFREEZE) {
            each.ended = true;
            ++in.met_ends;
            item = nullptr;
            result = -1;
        }
    }
    return result;
}

came_from gathered_from(const runner& thread) {
    if (thread.gt != nullptr) return {thread.gt->get_channel_id(), !thread.gt->fromInput()};
    const ssize_t back = thread.lb->get_channel_id();
    return back < 0 ? came_from{thread.last_forward, false} : came_from{back, true};
}

void print_stats(const runner& thread, std::ostream& out) {
    out << "node " << (thread.node != nullptr ? thread.node->get_my_id() : -1) << ": "
        << thread.items.load() << " items, " << diffmsec(thread.work_stopped, thread.work_started)
        << " ms\n";
}

}  // namespace detail

}  // namespace ff
