#include <ostream>
#include <stdexcept>
#include <typeinfo>

#include "network.hpp"
#include "runner.hpp"

namespace ff {

ff_gatherer::~ff_gatherer() = default;

size_t ff_gatherer::get_num_inchannels() const {
    return thread_ != nullptr ? thread_->in.count(false) : 0;
}
size_t ff_gatherer::get_num_feedbackchannels() const {
    return thread_ != nullptr ? thread_->in.count(true) : 0;
}
size_t ff_gatherer::get_num_outchannels() const {
    if (thread_ == nullptr) return 0;
    return thread_->lb != nullptr ? thread_->lb->get_num_outchannels() : thread_->out != nullptr;
}
size_t ff_gatherer::getnworkers() const {
    if (thread_ == nullptr) return 0;
    const size_t all = thread_->in.inputs.size();
    const size_t ended = all - thread_->in.left();
    return (running_ != 0 && running_ < all ? running_ : all) - ended;
}

ssize_t ff_gatherer::selectworker() {
    const auto& inputs = thread_->in.inputs;
    const auto all =
        static_cast<ssize_t>(running_ != 0 && running_ < inputs.size() ? running_ : inputs.size());
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
    const auto turn_is_here = [&] { return !in.turns.ended && !in.turns.queue->empty(); };
    const auto any = [](const detail::inlet::input&) { return true; };
    while (!thread.abandoned_) {
        void* turn = nullptr;
        if (turn_is_here() && in.turns.queue->try_pop(&turn)) {
            if (detail::is_end(turn)) {
                in.turns.ended = true;
                continue;
            }
            const size_t at = reinterpret_cast<size_t>(turn) - 1;
            if (at >= in.inputs.size() || in.inputs[at].ended) continue;
            auto& queue = *in.inputs[at].queue;
            in.news.sleep_until([&] { return !queue.empty() || thread.abandoned_; });
            if (queue.try_pop(task)) return static_cast<ssize_t>(at);
            continue;
        }
        size_t from = detail::inlet::none;
        in.news.sleep_until([&] {
            return (from = in.next(any)) != detail::inlet::none || turn_is_here() ||
                   thread.abandoned_;
        });
        // A turn is told before its item. So what was here before we saw that there is no turn has
        // none: a mark, or a further item of a worker that sent several for one.
        if (from == detail::inlet::none || turn_is_here()) continue;
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

void ff_gatherer::begin_stream() {
    usual_ = typeid(*this) == typeid(ff_gatherer) && thread_->in.turns.queue == nullptr;
}

/// Of what is there. Below 0: nothing.
ssize_t ff_gatherer::gather_usual(void** task) {
    auto& inputs = thread_->in.inputs;
    const size_t all = running_ != 0 && running_ < inputs.size() ? running_ : inputs.size();
    for (size_t tried = 0; tried != all; ++tried) {
        if (static_cast<size_t>(++next_) >= all) next_ = 0;
        detail::inlet::input& each = inputs[static_cast<size_t>(next_)];
        if (!each.ended && each.queue->try_pop(task)) return next_;
    }
    return -1;
}

ssize_t ff_gatherer::gather_task(void** task) {
    detail::runner& thread = *thread_;
    auto& inputs = thread.in.inputs;
    if (usual_) {
        const ssize_t from = gather_usual(task);
        if (from >= 0) return from;
    }
    if (thread.in.turns.queue != nullptr) return gather_in_turn(task);
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
