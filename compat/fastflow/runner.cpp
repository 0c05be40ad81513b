#include "runner.hpp"

#include <exception>
#include <stdexcept>
#include <utility>

#include <sys/syscall.h>
#include <unistd.h>

#include "forced_unwind.hpp"

namespace ff::detail {
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

int runner::start(bool frozen) {
    const std::lock_guard guard(mutex_);
    if (thread_.joinable()) return -1;
    starts_frozen_ = frozen;
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
    pin();
    for (bool again = true; again;) {
        void* const result = std::exchange(starts_frozen_, false) ? FF_EOS : round();
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

/// To the processor of the group's mapping, else to that of the node's setAffinity().
void runner::pin() const {
    const int at = cpu >= 0 || node == nullptr ? cpu : node->getCPUId();
    if (at >= 0 && ff_mapThreadToCpu(at) != 0)
        error("a node cannot have processor %d, expected one that this process may use\n", at);
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
    } catch (const forced_unwind&) {
        // pthread_exit(), or a cancelled thread: it cannot be kept from ending.
        error("a node's thread was made to exit, and the node has ended\n");
        fail();
        end_failed();
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
        end_failed();
    }
    if (in.turns != nullptr) in.turns->leave();
    gettimeofday(&stopped, nullptr);
    return result;
}

/// After a failure, the end of its stream. The program's callbackOut() may throw here, too.
void runner::end_failed() {
    try {
        emit_end(FF_EOS);
    } catch (const forced_unwind&) {
        throw;
    } catch (const std::exception& failure) {
        error("a node that has failed threw an exception at its end: %s\n", failure.what());
    } catch (...) {
        error("a node that has failed threw an exception of an unknown type at its end\n");
    }
}

/// What svc() has not taken of this stream is dropped.
void runner::end_early(std::size_t inputs) {
    for (std::size_t at = 0; at != inputs; ++at)
        in.inputs[at].stale = !in.inputs[at].ended;
}

int runner::init() {
    if (how == kind::spread) return lb->svc_init();
    if (how == kind::gather) return gt->svc_init();
    return node->svc_init();
}
void runner::end() {
    if (how == kind::spread)
        lb->svc_end();
    else if (how == kind::gather)
        gt->svc_end();
    else
        node->svc_end();
}

void* runner::stream() {
    calls_back_ = node != nullptr && access::calls_back(*node);
    if (init() < 0)
        throw std::runtime_error("svc_init of node " +
                                 std::to_string(node != nullptr ? node->get_my_id() : -1) +
                                 " returned a number below 0");
    gettimeofday(&work_started, nullptr);
    inlet_ = inlet_node();
    if (lb != nullptr) lb->begin_stream();
    if (gt != nullptr) gt->begin_stream();
    void* const result = how == kind::plain    ? plain_loop()
                         : how == kind::spread ? spread_loop()
                                               : gather_loop();
    gettimeofday(&work_stopped, nullptr);
    end();
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
    if (std::exchange(end_sent_, true)) return;
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

}  // namespace ff::detail
