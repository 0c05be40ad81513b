#include "directory/client/watch_state.hpp"

#include <utility>

#include <amalgam/core/log.hpp>
#include <amalgam/rpc/extension/thrown.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/ult.hpp>

#include "directory/client/context_core.hpp"
#include "directory/limits.hpp"
#include "directory/protocol/background.hpp"

namespace amalgam {

void resource_watch::end() noexcept {
    if (of_ == nullptr) return;
    of_->end();
    of_.reset();
}

namespace detail {

void watch_state::note(pool& where, resource_change::kind what, const found_values& which) {
    using kind = resource_change::kind;
    const std::lock_guard one(lock_);
    if (overflowed_) return;
    const auto known = there_.find(which.id);
    switch (what) {
        case kind::appeared:
        case kind::changed:
            if (known == there_.end()) {
                what = kind::appeared;
            } else if (known->second.what.context != which.context) {
                queue(where, kind::gone, known->second.what);
                what = kind::appeared;
            } else if (what == kind::appeared && is_same(known->second.what, which)) {
                known->second.in_doubt = false;
                return;
            } else {
                what = kind::changed;
            }
            there_[which.id] = {which, false};
            break;
        case kind::gone:
            if (known == there_.end()) return;
            there_.erase(known);
            break;
        case kind::ended:
            break;
    }
    queue(where, what, which);
}

unsigned watch_state::doubt() {
    const std::lock_guard one(lock_);
    for (auto& [id, each] : there_)
        each.in_doubt = true;
    return ++doubts_;
}

void watch_state::settle(pool& where, unsigned time) {
    const std::lock_guard one(lock_);
    if (time != doubts_) return;
    for (auto at = there_.begin(); at != there_.end();) {
        if (!at->second.in_doubt) {
            ++at;
            continue;
        }
        const found_values gone = std::move(at->second.what);
        at = there_.erase(at);
        queue(where, resource_change::kind::gone, gone);
        if (overflowed_) return;
    }
}

void watch_state::queue(pool& where, resource_change::kind what, const found_values& which) {
    if (ended_ || overflowed_) return;
    resource_change change;
    change.what = what;
    if (which.id != resource_id::none) change.which = filled(query_, which);
    untold_bytes_ += change.which.what.bytes().size();
    untold_.push_back(std::move(change));
    if (untold_.size() > limits::max_undelivered_changes ||
        untold_bytes_ > limits::max_undelivered_change_bytes)
        overflow(where);
    if (std::exchange(telling_, true)) return;
    post_in_background(where, [self = shared_from_this()] { self->tell_all(); });
}

// Some changes would be lost: drop all of them, and tell the user.
void watch_state::overflow(pool& where) {
    overflowed_ = true;
    untold_.clear();
    untold_.emplace_back().what = resource_change::kind::ended;
    untold_bytes_ = untold_.front().which.what.bytes().size();
    there_.clear();
    log(log_level::warn, "directory", "a watch's function is too slow; ending the watch",
        {{"watch", number_}});
    amalgam::post(where, [self = shared_from_this()] {
        if (const auto whose = self->context_.lock()) whose->unwatch(self->number_);
    });
}

void watch_state::tell_all() {
    for (;;) {
        const std::lock_guard alone(calling_);
        resource_change change;
        {
            const std::lock_guard one(lock_);
            if (ended_ || untold_.empty()) {
                telling_ = false;
                return;
            }
            change = std::move(untold_.front());
            untold_.pop_front();
            untold_bytes_ -= change.which.what.bytes().size();
        }
        try {
            what_(change);
        } catch (...) {
            log_thrown_in("directory", "the function of a watch");
        }
    }
}

void watch_state::end() noexcept {
    {
        const std::lock_guard one(lock_);
        ended_ = true;
    }
    if (const auto whose = context_.lock()) whose->unwatch(number_);
    const cancel_later it_must_not_throw;
    // Free or held by the caller, once nobody else runs it.
    const bool may_wait = this_task::in_ult() || execution_stream::current() == nullptr;
    if (!may_wait) return;
    const std::lock_guard alone(calling_);
}

}  // namespace detail

}  // namespace amalgam
