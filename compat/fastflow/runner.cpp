#include "runner.hpp"

#include <exception>
#include <stdexcept>

#include <cxxabi.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ff::detail {
namespace {

/// Marks that svc() returns to say that there is nothing to send.
bool is_nothing(const void* item) {
    return item == FF_GO_ON || item == FF_FLUSH || item == FF_BLK || item == FF_NBLK;
}

}  // namespace

std::size_t inlet::left() const {
    std::size_t open = 0;
    for (const input& each : inputs)
        open += each.ended ? 0 : 1;
    return open;
}
std::size_t inlet::count(bool feedback) const {
    std::size_t found = 0;
    for (const input& each : inputs)
        found += each.feedback == feedback ? 1 : 0;
    return found;
}

bool inlet::input::drop_stale() {
    void* item = nullptr;
    while (stale && queue->try_pop(&item))
        stale = !is_end(item);
    return !stale;
}
void inlet::input::end_stale() {
    void* item = nullptr;
    while (stale && queue->taken() < until && queue->try_pop(&item))
        stale = !is_end(item);
    stale = ended = false;
}

void inlet::reopen() {
    for (input& each : inputs) {
        each.stale = false;
        if (!each.outside) each.queue->discard();
        each.queue->reopen();
    }
    if (turns.queue == nullptr) return;
    turns.stale = false;
    turns.queue->discard();
    turns.queue->reopen();
}
void inlet::close() {
    for (input& each : inputs) {
        each.queue->close();
        each.queue->discard();
    }
    if (turns.queue == nullptr) return;
    turns.queue->close();
    turns.queue->discard();
}
bool inlet::stale() const {
    for (const input& each : inputs)
        if (each.stale) return true;
    return turns.stale;
}
bool inlet::drop_stale() {
    bool all = turns.drop_stale();
    for (input& each : inputs)
        all = each.drop_stale() && all;
    return all;
}
void inlet::mark_stale() {
    for (input& each : inputs)
        each.until = each.queue->sent();
    if (turns.queue != nullptr) turns.until = turns.queue->sent();
}
void inlet::begin_stream() {
    for (input& each : inputs)
        each.end_stale();
    turns.end_stale();
}

runner::~runner() {
    if (thread_.joinable()) thread_.join();
}

void runner::announce() {
    const std::lock_guard guard(mutex_);
    if (thread_.joinable()) return;
    started_ = true;
    done_ = frozen_ = false;
    failed_ = stream_failed_ = false;
    abandoned_ = false;
    in.reopen();
}

int runner::start() {
    const std::lock_guard guard(mutex_);
    if (thread_.joinable()) return -1;
    try {
        thread_ = std::thread([self = shared_from_this()] { self->main(); });
    } catch (const std::exception& failure) {
        error("a node's thread cannot be started: %s\n", failure.what());
        started_ = false;
        return -1;
    }
    return 0;
}

void runner::main() {
    thread_id = static_cast<std::size_t>(syscall(SYS_gettid));
    if (cpu >= 0) ff_mapThreadToCpu(cpu);
    for (bool again = true; again;) {
        void* const result = round();
        std::unique_lock guard(mutex_);
        if (result != FF_EOS_NOFREEZE && !stop_) {
            if (freezing_ == 0 && result == FF_EOS) stop_ = true;
            while (freezing_ == 1 && !abandoned_)
                freeze_here(guard);
        }
        if (freezing_ != 0) freezing_ = 1;
        again = (!stop_ || thawed_) && !abandoned_ && !lost_;
        thawed_ = false;
    }
    finish();
}

/// Until it is thawed. What still comes of a stream that it ended early is dropped meanwhile: who
/// sends it must not wait for room.
void runner::freeze_here(std::unique_lock<std::mutex>& guard) {
    frozen_ = true;
    changed_.notify_all();
    if (!in.stale()) {
        changed_.wait(guard);
        return;
    }
    woken_ = false;
    guard.unlock();
    in.news.sleep_until([this] { return woken_ || abandoned_ || in.drop_stale(); });
    guard.lock();
}

void runner::finish() {
    in.close();  // Who sends here must not wait for room.
    {
        const std::lock_guard guard(mutex_);
        if (freezing_ != 0) frozen_ = true;
        done_ = true;
        changed_.notify_all();
    }
    if (end_bell != nullptr) end_bell->ring();
}

/// From svc_init() to svc_end(): one stream.
void* runner::round() {
    gettimeofday(&started, nullptr);
    void* result = FF_EOS;
    end_sent_ = stream_failed_ = false;
    bool failed = true;
    try {
        in.begin_stream();
        if (lb != nullptr) access::turns_ended(*lb) = false;
        result = stream();
        failed = false;
    } catch (const abi::__forced_unwind&) {
        // pthread_exit(), or a cancelled thread: it cannot be kept from ending.
        error("a node's thread was made to exit, and the node has ended\n");
        fail();
        if (!end_sent_) emit_end(FF_EOS);
        finish();
        throw;
    } catch (const run_lost&) {
        lost_ = true;
    } catch (const std::exception& failure) {
        error("a node threw an exception, and has ended: %s\n", failure.what());
    } catch (...) {
        error("a node threw an exception of an unknown type, and has ended\n");
    }
    if (failed) {
        fail();
        result = FF_EOS;
        end_early(in.inputs.size());
        if (!end_sent_) emit_end(FF_EOS);
    }
    // Turns of workers that ended early.
    in.turns.stale = in.turns.queue != nullptr && !in.turns.ended;
    gettimeofday(&stopped, nullptr);
    return result;
}

/// What svc() has not taken of this stream is dropped.
void runner::end_early(std::size_t inputs) {
    for (std::size_t at = 0; at != inputs; ++at)
        in.inputs[at].stale = !in.inputs[at].ended;
}

void* runner::stream() {
    if (node != nullptr && node->svc_init() < 0)
        throw std::runtime_error("svc_init of node " + std::to_string(node->get_my_id()) +
                                 " returned a number below 0");
    gettimeofday(&work_started, nullptr);
    void* const result = how == kind::plain    ? plain_loop()
                         : how == kind::spread ? spread_loop()
                                               : gather_loop();
    gettimeofday(&work_stopped, nullptr);
    if (node != nullptr) node->svc_end();
    return result;
}
int runner::wait() {
    {
        std::unique_lock guard(mutex_);
        stop_ = true;
        if (freezing_ > 0 && thread_.joinable()) {
            changed_.wait(guard, [this] { return frozen_ || done_; });
            freezing_ = 0;
            frozen_ = false;
            woken_ = true;
            changed_.notify_all();
        }
    }
    in.news.ring();
    if (thread_.joinable()) thread_.join();
    const std::lock_guard guard(mutex_);
    started_ = false;
    freezing_ = 0;
    return failed_ ? -1 : 0;
}

int runner::wait_freezing() {
    std::unique_lock guard(mutex_);
    if (!started_) return 0;
    changed_.wait(guard, [this] { return frozen_ || done_; });
    return stream_failed_ ? -1 : 0;
}

void runner::freeze() {
    const std::lock_guard guard(mutex_);
    stop_ = false;
    freezing_ = 1;
}

void runner::thaw(bool again) {
    {
        const std::lock_guard guard(mutex_);
        thawed_ = !stop_;  // A wait() that comes before it has woken must not cost it that stream.
        freezing_ = again ? 2 : 0;
        if (frozen_ && !done_) in.mark_stale();
        frozen_ = false;
        woken_ = true;
        changed_.notify_all();
    }
    in.news.ring();
}

void runner::stop() {
    const std::lock_guard guard(mutex_);
    stop_ = true;
}

bool runner::frozen_asked() const {
    const std::lock_guard guard(mutex_);
    return freezing_ > 0;
}

bool runner::done() const {
    const std::lock_guard guard(mutex_);
    return done_ || !started_ || (frozen_ && !stop_);
}

bool runner::begun() const {
    const std::lock_guard guard(mutex_);
    return thread_.joinable();
}

bool runner::over() const {
    const std::lock_guard guard(mutex_);
    return done_ || !started_;
}

void runner::end_abandoned() {
    if (thread_.joinable()) thread_.join();
    const std::lock_guard guard(mutex_);
    started_ = false;
    freezing_ = 0;
}

void runner::abandon() {
    {
        const std::lock_guard guard(mutex_);
        abandoned_ = true;
        stop_ = true;
        changed_.notify_all();
    }
    in.news.ring();
}

void runner::emit(void* item) {
    if (lb != nullptr)
        access::schedule(*lb, item, static_cast<unsigned long>(-1));
    else if (out != nullptr)
        out->push(item);
}

void runner::emit_end(void* mark) {
    end_sent_ = true;
    if (lb != nullptr)
        access::end(*lb, mark);
    else if (out != nullptr)
        out->push(mark);
}

void runner::flush() {
    if (out != nullptr) out->flush();
    if (lb == nullptr) return;
    for (const auto& each : access::outs(*lb))
        each->flush();
}

void* runner::call(void* item) {
    items.store(items.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    void* const result = node->svc(item);
    if (result == FF_FLUSH) flush();
    // A combination that ended has told those after it already.
    if (result == FF_GO_OUT && node->isComp() && access::ended(static_cast<ff_comb&>(*node)))
        return FF_EOS;
    return result;
}

ff_minode* runner::inlet_node() const {
    if (node == nullptr) return nullptr;
    ff_node* first = node->isComp() ? static_cast<ff_comb*>(node)->getFirst() : node;
    return first->isMultiInput() ? static_cast<ff_minode*>(first) : nullptr;
}

void runner::set_channel(ssize_t channel, bool forward) {
    if (ff_minode* several = inlet_node()) access::set_channel(*several, channel, forward);
}

void runner::notify(ssize_t id) {
    if (node != nullptr) node->eosnotify(id);
}

void* runner::plain_loop() {
    bool skip = skip_first;
    const bool comb = node->isComp();
    for (;;) {
        void* item = nullptr;
        if (!in.inputs.empty() && !skip) {
            const auto takes = [](const inlet::input&) { return true; };
            std::size_t from = inlet::none;
            if (!active()) {
                // Its input is off: it is called with nothing.
            } else if ((from = in.next(takes)) == inlet::none) {
                in.news.sleep_until(
                    [&] { return (from = in.next(takes)) != inlet::none || abandoned_; });
            }
            if (from != inlet::none) in.inputs[from].queue->try_pop(&item);
            if (from == inlet::none && abandoned_) return FF_EOS;
            if (is_end(item)) {
                // A feedback channel beside an input: either ends it, as in FastFlow.
                in.inputs[from].ended = true;
                notify(-1);
                if (item == FF_EOS) end_early(in.inputs.size());
                if (item != FF_EOS_NOFREEZE) emit_end(item);
                return item;
            }
            if (item == FF_GO_OUT) return item;
            if (item == FF_BLK || item == FF_NBLK) {
                if (out != nullptr) out->push(item);
                continue;
            }
        }
        if (abandoned_) return FF_EOS;
        skip = false;
        const std::size_t sent = ordered_worker ? out->sent() : 0;
        void* const result = call(item);
        if (result == FF_GO_OUT || result == FF_EOS_NOFREEZE) return result;
        if (result == nullptr || result == FF_EOS || result == FF_EOSW) {
            end_early(in.inputs.size());
            if (!comb) emit_end(result == nullptr ? FF_EOS : result);
            return FF_EOS;
        }
        if (!is_nothing(result)) {
            emit(result);
        } else if (ordered_worker && out->sent() == sent) {
            out->push(FF_GO_ON);  // Its turn has passed without a result.
        }
    }
}

/// An item for a node with several outputs. `channel`: -1 from the stage before.
void* runner::wait_one(ssize_t& channel, bool& forward) {
    const auto takes = [this](const inlet::input& each) { return each.feedback || active(); };
    std::size_t from = in.next(takes);
    if (from == inlet::none) {
        const auto ready = [&] { return (from = in.next(takes)) != inlet::none || abandoned_; };
        if (active())
            in.news.sleep_until(ready);
        else
            in.news.nap_until(ready);
    }
    void* item = nullptr;
    if (from == inlet::none) {
        channel = -2;
        return abandoned_ ? FF_EOS_NOFREEZE : nullptr;
    }
    const inlet::input& source = in.inputs[from];
    source.queue->try_pop(&item);
    forward = !source.feedback;
    channel = forward ? -1 : source.id;
    last_forward = forward ? source.id : -1;
    set_channel(source.id, forward);
    return item;
}

/// After an emitter has ended its workers: takes what they had still on the way to it, so that the
/// next stream begins with empty queues.
void runner::absorb_ends() {
    for (inlet::input& each : in.inputs) {
        if (!each.feedback || each.ended) continue;
        void* item = nullptr;
        while (!is_end(item) && !abandoned_) {
            if (!each.queue->try_pop(&item))
                in.news.sleep_until([&] { return !each.queue->empty() || abandoned_; });
        }
        each.ended = true;
    }
}

void* runner::spread_loop() {
    bool skip = skip_first;
    const bool loops = master_worker || in.count(true) != 0;
    std::size_t left = in.inputs.size();
    if (node == nullptr && left == 0) {
        lb->broadcast_task(FF_GO_ON);
        emit_end(FF_EOS);
        return FF_EOS;
    }
    for (;;) {
        void* item = nullptr;
        if (!in.inputs.empty() && !skip) {
            ssize_t channel = -2;
            bool forward = true;
            item = wait_one(channel, forward);
            access::channel_id(*lb) = channel;
            if (item == FF_GO_OUT) return item;
            if (item == FF_EOSW || item == FF_BLK || item == FF_NBLK) continue;
            if (is_end(item)) {
                if (abandoned_) return FF_EOS;
                if (item == FF_EOS) in.inputs[in.last].ended = true;
                notify(channel);
                if (--left != 0) continue;
                if (!loops && item == FF_EOS) emit_end(item);
                return item;
            }
        } else if (abandoned_) {
            return FF_EOS;
        }
        skip = false;
        void* const result = node != nullptr ? call(item) : item;
        if (is_nothing(result)) continue;
        if (result == FF_GO_OUT || result == FF_EOS_NOFREEZE) return result;
        if (result == nullptr || result == FF_EOS || result == FF_EOSW) {
            if (node == nullptr || !node->isComp() || !access::ended(static_cast<ff_comb&>(*node)))
                emit_end(result == nullptr ? FF_EOS : result);
            if (frozen_asked()) absorb_ends();
            end_early(in.inputs.size());
            return FF_EOS;
        }
        emit(result);
    }
}

/// While the input of a node with several is off. Below 0: there is nothing for now.
ssize_t runner::take_feedback(void** item) {
    const auto takes = [](const inlet::input& each) { return each.feedback; };
    std::size_t from = in.next(takes);
    if (from == inlet::none)
        in.news.nap_until([&] { return (from = in.next(takes)) != inlet::none || abandoned_; });
    if (from == inlet::none) return -1;
    in.inputs[from].queue->try_pop(item);
    return static_cast<ssize_t>(from);
}

void* runner::gather_loop() {
    bool skip = skip_first;
    void* last_end = FF_EOS;
    std::size_t all = in.inputs.size();
    if (gt->running_ != 0 && gt->running_ < all) all = gt->running_;
    std::size_t ended = 0;
    while (ended < all || all == 0) {
        void* item = nullptr;
        if (!skip && all != 0) {
            const bool open = active();
            const ssize_t from = open ? gt->gather_task(&item) : take_feedback(&item);
            if (from < 0 && abandoned_) return FF_EOS;
            if (open || from >= 0) {
                if (from < 0 || static_cast<std::size_t>(from) >= in.inputs.size())
                    throw std::out_of_range("input " + std::to_string(from) +
                                            " does not exist, expected one below " +
                                            std::to_string(in.inputs.size()));
                inlet::input& source = in.inputs[static_cast<std::size_t>(from)];
                if (item == FF_GO_ON || item == FF_FLUSH || item == FF_BLK || item == FF_NBLK)
                    continue;
                gt->channel_ = source.id;
                gt->from_input_ = !source.feedback;
                set_channel(source.id, !source.feedback);
                if (is_end(item)) {
                    source.ended = true;
                    last_end = item;
                    ++ended;
                    if (!notify_once) notify(source.id);
                    continue;
                }
            }
        }
        if (abandoned_) return FF_EOS;
        skip = false;
        void* const result = node != nullptr ? call(item) : item;
        ended = in.inputs.size() - in.left();  // all_gather() may have met some
        if (is_nothing(result)) continue;
        if (result == FF_GO_OUT || result == FF_EOS_NOFREEZE) return result;
        if (result == nullptr || result == FF_EOS || result == FF_EOSW) {
            end_early(all);
            if (result == FF_EOSW) return FF_EOS;
            last_end = FF_EOS;
            if (node != nullptr && node->isComp() && access::ended(static_cast<ff_comb&>(*node)))
                return FF_EOS;
            break;
        }
        emit(result);
    }
    if (last_end == FF_EOS) {
        if (notify_once) notify(-1);
        emit_end(FF_EOS);
    }
    return last_end == FF_EOSW ? FF_EOS : last_end;
}

}  // namespace ff::detail
