#include "directory/watch_state.hpp"

#include <exception>
#include <utility>

#include <amalgam/core/log.hpp>
#include <amalgam/tasks/ult.hpp>

#include "directory/context_core.hpp"

namespace amalgam {

void resource_watch::end() noexcept {
    if (of_ == nullptr) return;
    of_->end();
    of_.reset();
}

namespace detail {

void watch_state::note(pool& where, resource_change::kind what, const found_values& which) {
    const std::lock_guard one(lock_);
    if (ended_) return;
    resource_change& change = untold_.emplace_back();
    change.what = what;
    if (which.id != resource_id::none) change.which = filled(query_, which);
    if (std::exchange(telling_, true)) return;
    amalgam::post(where, [self = shared_from_this()] { self->tell_all(); });
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
        }
        try {
            what_(change);
        } catch (const std::exception& why) {
            log(log_level::error, "directory", "the function of a watch threw",
                {{"why", why.what()}});
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
    // Free, or held by the caller, when nobody else runs it.
    const std::lock_guard alone(calling_);
}

}  // namespace detail

}  // namespace amalgam
