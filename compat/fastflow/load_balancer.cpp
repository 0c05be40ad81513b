#include <ostream>
#include <typeinfo>

#include "network.hpp"
#include "runner.hpp"

namespace ff {

ff_loadbalancer::~ff_loadbalancer() = default;

namespace {
constexpr unsigned long forever = static_cast<unsigned long>(-1);
}

bool ff_loadbalancer::put(size_t at, void* task, unsigned long retry) {
    FFBUFFER& queue = *outs_[at];
    if (order_ == nullptr && queue.try_push(task)) return true;
    while (queue.full()) {
        if (retry == forever) {
            queue.wait_room();
        } else {
            if (retry <= 1) return false;
            --retry;
            sched_yield();
        }
    }
    if (order_ == nullptr || task >= FF_TAG_MIN) return queue.try_push(task);
    queue.prepare_surely();
    // Before the item: who finds its result finds its turn.
    order_->tell(at);
    queue.push_surely(task);
    return true;
}

bool ff_loadbalancer::select() {
    next_ = selectworker();
    if (next_ < outs_.size()) return true;
    error("selectworker: channel %zu does not exist, expected one below %zu\n", next_,
          outs_.size());
    thread_->fail();
    return false;
}

void ff_loadbalancer::begin_stream() {
    usual_ = typeid(*this) == typeid(ff_loadbalancer) && !outs_.empty();
    calls_back_out_ = filter_ != nullptr && detail::access::calls_back(*filter_);
    later_.reserve(outs_.size());  // An end needs no memory.
}

int ff_loadbalancer::svc_init() {
    return filter_ != nullptr ? filter_->svc_init() : 0;
}
void ff_loadbalancer::svc_end() {
    if (filter_ != nullptr) filter_->svc_end();
}
void ff_loadbalancer::callbackIn(void* lb) {
    if (filter_ != nullptr) filter_->callbackIn(lb);
}
void ff_loadbalancer::callbackOut(void* lb) {
    if (filter_ != nullptr) filter_->callbackOut(lb);
}
int ff_loadbalancer::set_masterworker() {
    if (master_worker_) {
        error("set_masterworker: the workers send back already, expected it once\n");
        return -1;
    }
    master_worker_ = true;
    return 0;
}

bool ff_loadbalancer::schedule_task(void* task, unsigned long retry, unsigned long) {
    if (running_ == 0) return true;  // Nobody takes it.
    if (detail::access::schedule_usual(*this, task)) return true;
    for (unsigned long round = 0; round < retry; ++round) {
        later_.clear();
        for (size_t attempt = nattempts(); attempt != 0; --attempt) {
            if (!select()) return false;
            if (calls_back_) {
                if (outs_[next_]->full()) {
                    later_.push_back(next_);
                    continue;
                }
                callback(static_cast<int>(next_));
                if ((task = callback(static_cast<int>(next_), task)) == nullptr) {
                    error("callback: a null pointer, expected the item to send\n");
                    thread_->fail();
                    return false;
                }
            }
            if (put(next_, task, 1)) return true;
            later_.push_back(next_);
        }
        if (round + 1 < retry) thread_->room.sleep_until([this] { return any_room(); });
    }
    return false;
}

bool ff_loadbalancer::any_room() const {
    for (const size_t at : later_)
        if (!outs_[at]->full()) return true;
    return false;
}

bool ff_loadbalancer::ff_send_out_to(void* task, int id, unsigned long retry, unsigned long) {
    if (id < 0 || static_cast<size_t>(id) >= outs_.size()) {
        error("ff_send_out_to: channel %d does not exist, expected one below %zu\n", id,
              outs_.size());
        return false;
    }
    if (task == nullptr) return false;
    return put_told(static_cast<size_t>(id), task, retry);
}
bool ff_loadbalancer::put_told(size_t at, void* task, unsigned long retry) {
    if (!put(at, task, retry)) return false;
    if (calls_back_out_) callbackOut(this);
    return true;
}

void ff_loadbalancer::broadcast_task(void* task) {
    if (task == nullptr) return;
    if (order_ != nullptr && detail::is_end(task) && !turns_ended_) {
        turns_ended_ = true;
        order_->end();
    }
    // First whoever has room: nobody waits for the slowest.
    later_.clear();
    for (size_t at = 0; at != running_; ++at)
        if (!put(at, task, 1)) later_.push_back(at);
    for (const size_t at : later_)
        put(at, task, forever);
    if (calls_back_out_) callbackOut(this);
}

void ff_loadbalancer::end(void* task) {
    broadcast_task(task);
    for (size_t at = running_; at < outs_.size() && feedback_ != 0; ++at)
        put_told(at, task, forever);
}

int ff_loadbalancer::get_next_free_channel(bool wait) {
    if (running_ == 0) return -1;
    do {
        later_.clear();
        for (size_t step = 1; step <= running_; ++step) {
            const size_t at = (next_ + step) % running_;
            later_.push_back(at);
            if (outs_[at]->full()) continue;
            next_ = at - 1;
            return static_cast<int>(at);
        }
        if (wait) thread_->room.sleep_until([this] { return any_room(); });
    } while (wait);
    return -1;
}

size_t ff_loadbalancer::get_num_inchannels() const {
    if (thread_ == nullptr) return 0;
    return thread_->in.count(false) + (manager_ != nullptr ? 1 : 0);
}

int ff_loadbalancer::all_gather(void* task, void** items) {
    return detail::gather_all(*thread_, task, items);
}

int ff_loadbalancer::getTid(ff_node* node) const {
    return static_cast<int>(node->getOSThreadId());
}

size_t ff_loadbalancer::how_many(ssize_t workers) const {
    return workers < 1 || static_cast<size_t>(workers) > outs_.size()
               ? outs_.size()
               : static_cast<size_t>(workers);
}
/// Before the emitter sends: a worker that is announced later loses what came before.
bool ff_loadbalancer::announce_workers() {
    for (size_t at = 0; at < outs_.size(); ++at)
        if (worker(at) == nullptr || !detail::announce_threads(*worker(at))) return false;
    return true;
}

int ff_loadbalancer::runlb(bool, ssize_t workers) {
    if (thread_ == nullptr || thread_->begun()) {
        error("runlb: the block runs, or was not prepared, expected prepare() and no run()\n");
        return -1;
    }
    running_ = workers < 1 && feedback_ != 0 ? feedback_ : how_many(workers);
    if (!announce_workers()) return -1;
    thread_->announce();
    return thread_->start();
}
int ff_loadbalancer::runWorkers(ssize_t workers) {
    const bool first = thread_ == nullptr || !thread_->begun();
    if (first) running_ = how_many(workers);
    if (first && !announce_workers()) return -1;
    const size_t wanted = how_many(workers);
    for (size_t at = 0; at < wanted; ++at)
        if (worker(at) == nullptr || !detail::start_threads(*worker(at), isfrozen())) return -1;
    return wanted != 0 ? 0 : -1;
}
int ff_loadbalancer::run(bool) {
    if (runlb() < 0) return -1;
    return runWorkers();
}

void ff_loadbalancer::freeze() {
    freezeWorkers();
    if (thread_ != nullptr) thread_->freeze();
}
void ff_loadbalancer::freeze(size_t at) {
    detail::access::freeze(worker(at));
}
void ff_loadbalancer::freezeWorkers() {
    for (size_t at = 0; at < running_; ++at)
        freeze(at);
}
void ff_loadbalancer::thaw(bool freeze, ssize_t workers) {
    thawWorkers(freeze, workers);
    if (thread_ != nullptr) thread_->thaw(freeze);
}
void ff_loadbalancer::thaw(size_t at, bool freeze) {
    detail::access::thaw(worker(at), freeze);
}
int ff_loadbalancer::thawWorkers(bool freeze, ssize_t workers) {
    running_ = how_many(workers);
    for (size_t at = 0; at < running_; ++at)
        thaw(at, freeze);
    return 0;
}
int ff_loadbalancer::wait_freezing() {
    const int workers = wait_freezingWorkers();
    return wait_lb_freezing() < 0 ? -1 : workers;
}
int ff_loadbalancer::wait_freezing(size_t at) {
    return detail::access::wait_freezing(worker(at));
}
int ff_loadbalancer::wait_lb_freezing() {
    return thread_ != nullptr ? thread_->wait_freezing() : 0;
}
int ff_loadbalancer::wait_freezingWorkers() {
    int result = 0;
    for (size_t at = 0; at < running_; ++at)
        if (wait_freezing(at) < 0) result = -1;
    return result;
}
int ff_loadbalancer::waitlb() {
    return thread_ != nullptr ? thread_->wait() : 0;
}
int ff_loadbalancer::waitWorkers() {
    int result = 0;
    for (size_t at = 0; at < targets_.size(); ++at)
        if (detail::access::wait(worker(at)) < 0) result = -1;
    return result;
}
int ff_loadbalancer::wait() {
    const int workers = waitWorkers();
    return waitlb() < 0 ? -1 : workers;
}
void ff_loadbalancer::stop() {
    if (thread_ != nullptr) thread_->stop();
}
bool ff_loadbalancer::isfrozen() const {
    return thread_ != nullptr && thread_->frozen_asked();
}
bool ff_loadbalancer::done() const {
    return thread_ == nullptr || thread_->done();
}

double ff_loadbalancer::ffTime() {
    return thread_ ? diffmsec(thread_->stopped, thread_->started) : 0;
}
double ff_loadbalancer::wffTime() {
    return thread_ ? diffmsec(thread_->work_stopped, thread_->work_started) : 0;
}
void ff_loadbalancer::ffStats(std::ostream& out) {
    if (thread_ != nullptr) detail::print_stats(*thread_, out);
}

}  // namespace ff
