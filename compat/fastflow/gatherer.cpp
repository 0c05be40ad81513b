#include <ostream>
#include <stdexcept>
#include <typeinfo>

#include "network.hpp"
#include "runner.hpp"

namespace ff {

ff_gatherer::~ff_gatherer() = default;

size_t ff_gatherer::get_num_inchannels() const {
    const size_t all = getNWorkers();
    return running_ != 0 && running_ < all ? running_ : all;
}
// That of an emitter knows of forward inputs only: the load balancer reads the others, too.
size_t ff_gatherer::getNWorkers() const {
    if (thread_ == nullptr) return 0;
    return thread_->gt == this ? thread_->in.inputs.size() : thread_->in.count(false);
}
size_t ff_gatherer::get_num_feedbackchannels() const {
    return thread_ != nullptr && thread_->gt == this ? thread_->in.count(true) : 0;
}
size_t ff_gatherer::get_num_outchannels() const {
    if (thread_ == nullptr) return 0;
    return thread_->lb != nullptr ? thread_->lb->get_num_outchannels() : thread_->out != nullptr;
}
size_t ff_gatherer::getnworkers() const {
    if (thread_ == nullptr) return 0;
    const size_t ended = thread_->in.inputs.size() - thread_->in.left();
    return get_num_inchannels() - ended;
}

ssize_t ff_gatherer::selectworker() {
    const auto& inputs = thread_->in.inputs;
    const auto all = static_cast<ssize_t>(get_num_inchannels());
    for (ssize_t tried = 0; tried < all; ++tried) {
        if (++next_ >= all) next_ = 0;
        if (!inputs[static_cast<size_t>(next_)].ended) return next_;
    }
    return next_;
}

/// Of an ordered farm, whose emitter has told whose turn it is.
ssize_t ff_gatherer::gather_in_turn(void** task) {
    detail::runner& thread = *thread_;
    detail::inlet& in = thread.in;
    detail::turn_order& turns = *in.turns;
    const auto any = [](const detail::inlet::input&) { return true; };
    while (!thread.abandoned_) {
        if (turns.here()) {
            const size_t at = turns.worker();
            if (at >= in.inputs.size() || in.inputs[at].ended) {
                turns.take();
                continue;
            }
            const auto& queue = in.inputs[at].queue;
            if (queue->try_pop(task)) {
                turns.take();
                return static_cast<ssize_t>(at);
            }
            in.news.sleep_until([&] { return !queue->empty() || thread.abandoned_; }, queue.get());
            continue;
        }
        size_t from = detail::inlet::none;
        in.news.sleep_until(
            [&] { return (from = in.next(any)) != detail::inlet::none || thread.abandoned_; });
        // A turn is told before its item. So what was here before we saw that there is no turn has
        // none: a mark, or a further item of a worker that sent several for one.
        if (from == detail::inlet::none || turns.here()) continue;
        if (in.inputs[from].queue->try_pop(task)) return static_cast<ssize_t>(from);
    }
    return -1;
}

size_t ff_gatherer::select() {
    const ssize_t from = selectworker();
    const size_t all = thread_->in.inputs.size();
    if (from < 0 || static_cast<size_t>(from) >= all)
        throw std::out_of_range("selectworker: input " + std::to_string(from) +
                                " does not exist, expected one below " + std::to_string(all));
    return static_cast<size_t>(from);
}

int ff_gatherer::set_filter(ff_node* collector) {
    if (filter_ != nullptr || collector == nullptr) {
        error("set_filter: there is a collector, or a null pointer was given, expected a node\n");
        return -1;
    }
    filter_ = collector;
    return 0;
}
int ff_gatherer::svc_init() {
    return filter_ != nullptr ? filter_->svc_init() : 0;
}
void ff_gatherer::svc_end() {
    if (filter_ != nullptr) filter_->svc_end();
}

void ff_gatherer::begin_stream() {
    usual_ = typeid(*this) == typeid(ff_gatherer);
}

ssize_t ff_gatherer::gather_task(void** task) {
    detail::runner& thread = *thread_;
    auto& inputs = thread.in.inputs;
    if (thread.in.turns != nullptr) return gather_in_turn(task);
    for (;;) {
        size_t from = select();
        if (inputs[from].queue->try_pop(task)) return static_cast<ssize_t>(from);
        tried_.assign(1, from);
        for (size_t attempt = nattempts(); attempt > 1; --attempt) {
            from = select();
            if (inputs[from].queue->try_pop(task)) return static_cast<ssize_t>(from);
            tried_.push_back(from);
        }
        thread.in.news.sleep_until([&] {
            for (const size_t at : tried_)
                if (!inputs[at].queue->empty()) return true;
            return thread.abandoned_.load();
        });
        if (thread.abandoned_) return -1;
    }
}

int ff_gatherer::all_gather(void* task, void** items) {
    return detail::gather_all(*thread_, task, items);
}
void ff_gatherer::freeze() {
    if (thread_ != nullptr) thread_->freeze();
}
void ff_gatherer::thaw(bool again, ssize_t workers) {
    running_ = workers < 1 ? 0 : static_cast<size_t>(workers);
    if (thread_ != nullptr) thread_->thaw(again);
}
void ff_gatherer::stop() {
    if (thread_ != nullptr) thread_->stop();
}
int ff_gatherer::wait_freezing() {
    return thread_ != nullptr ? thread_->wait_freezing() : 0;
}
int ff_gatherer::wait() {
    return thread_ != nullptr ? thread_->wait() : 0;
}
double ff_gatherer::ffTime() {
    return thread_ ? diffmsec(thread_->stopped, thread_->started) : 0;
}
double ff_gatherer::wffTime() {
    return thread_ ? diffmsec(thread_->work_stopped, thread_->work_started) : 0;
}
void ff_gatherer::ffStats(std::ostream& out) {
    if (thread_ != nullptr) detail::print_stats(*thread_, out);
}

}  // namespace ff
