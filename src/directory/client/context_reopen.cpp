#include <algorithm>
#include <new>
#include <utility>

#include <amalgam/core/log.hpp>
#include <amalgam/tasks/ult.hpp>

#include "directory/client/context_core.hpp"
#include "directory/limits.hpp"
#include "directory/protocol/background.hpp"
#include "directory/server/start_directory.hpp"

namespace amalgam::detail {

// A lost directory may be restarted without its state: its contexts then register again under their
// old ids, with all their resources.

peer context_core::directory() const {
    const std::lock_guard one(directory_lock_);
    return directory_;
}

void context_core::set_directory(const peer& there) {
    const std::lock_guard one(directory_lock_);
    directory_ = there;
    directory_gone_ = false;
}

void context_core::keep(resource_id id, const attribute_view& what) {
    if (is_here_ || options_.reopen_within.count() <= 0) return;
    const std::lock_guard one(kept_lock_);
    kept_.insert_or_assign(id, attribute_list(what));
    ++kept_changes_;
}

void context_core::keep_not(resource_id id) noexcept {
    const std::lock_guard one(kept_lock_);
    if (kept_.erase(id) == 0) return;
    ++kept_changes_;
    if (lost_) removed_.push_back(id);
}

void context_core::wait_for_directory() {
    {
        const std::lock_guard one(directory_lock_);
        if (!reopens_) return;
    }
    reopened_.wait();
}

bool context_core::begin_to_reopen() {
    reopens_ = !is_here_ && !closed_ && options_.reopen_within.count() > 0;
    if (!reopens_) return false;
    reopened_.reset();
    post_in_background(on_.pool(), [self = shared_from_this()] { self->reopen(); });
    return true;
}

void context_core::reopen() {
    try {
        if (return_to_directory()) return settle_watches();
    } catch (...) {  // The engine stops. Threads that are not its own may wait.
        give_up_directory();
        throw;
    }
    give_up_directory();
    change(0, resource_change::kind::ended, {});
    // It may have gone far enough to register with the directory.
    const auto close = on_.procedure<at_directory::close>(at_directory::close_name);
    (void)close.on(directory()).within(limits::answer_limit).try_call(id_);
}

void context_core::give_up_directory() noexcept {
    {
        const std::lock_guard one(directory_lock_);
        reopens_ = false;
    }
    reopened_.set();
}

// False: not within the time for it.
bool context_core::return_to_directory() {
    const time_point until = on_.now() + options_.reopen_within;
    time_point start_again = on_.now();
    for (attempt how = attempt::failed; !closed_;) {
        try {
            how = try_to_reopen();
        } catch (const error& why) {
            rethrow_if_canceled(why);
            how = failure(why.code().code);
            log(log_level::debug, "directory", "the directory is not back yet",
                {{"why", why.what()}});
        } catch (const std::bad_alloc&) {
            how = attempt::failed;
        }
        if (how == attempt::done) {
            log(log_level::info, "directory", "the directory is back", {{"context", number(id_)}});
            return true;
        }
        if (how == attempt::refused || on_.now() >= until) return false;
        if (how == attempt::missing && starts_directory_ && on_.now() >= start_again) {
            start_again = on_.now() + limits::pause_between_starts;
            try {
                start_directory(directory_address_);
            } catch (const error& why) {  // Somebody else may start one.
                rethrow_if_canceled(why);
                log(log_level::info, "directory", why.what());
            }
        }
        if (closing_.wait_for(limits::pause_between_attempts)) return false;
    }
    return false;
}

context_core::attempt context_core::failure(errc why) noexcept {
    if (why == errc::denied) return attempt::refused;
    const bool is_missing = why == errc::unreachable || why == errc::disconnected;
    return is_missing ? attempt::missing : attempt::failed;
}

context_core::attempt context_core::try_to_reopen() {
    const result<peer> there = on_.try_lookup(directory_address_);
    if (!there) return failure(there.code().code);
    set_directory(*there);
    std::uint64_t changes = 0;
    std::vector<std::pair<resource_id, attribute_list>> all;
    {
        const std::lock_guard one(kept_lock_);
        changes = kept_changes_;
        all.assign(kept_.begin(), kept_.end());
    }
    all.emplace(all.begin(), id_, describe());
    for (const auto& [id, what] : all) {
        const attempt how = reopen_at(*there, id, what);
        if (how != attempt::done) return how;
    }
    if (const attempt how = watch_again_at(*there); how != attempt::done) return how;
    return end_reopening(changes) ? attempt::done : attempt::failed;
}

// What a watch has reported stays in doubt until reported again: other contexts may not have
// returned yet. A watch that the directory has no room for ends.
context_core::attempt context_core::watch_again_at(const peer& there) {
    std::vector<std::shared_ptr<watch_state>> all;
    {
        const std::lock_guard one(watches_lock_);
        in_doubt_.clear();
        for (const auto& [number, state] : watches_)
            all.push_back(state);
    }
    for (const auto& state : all) {
        const unsigned time = state->doubt();
        // If it is the same directory, it still has the watch.
        const auto ended =
            unwatch_.on(there).within(limits::answer_limit).try_call(id_, state->number());
        if (!ended) return failure(ended.code().code);
        const auto begun = watch_.on(there)
                               .within(limits::answer_limit)
                               .try_call(id_, state->number(), state->query());
        if (!begun) return failure(begun.code().code);
        const std::lock_guard one(watches_lock_);
        if (begun->code == errc::ok) {
            in_doubt_.emplace_back(state, time);
        } else if (watches_.erase(state->number()) != 0) {
            log(log_level::warn, "directory", "cannot restart a watch",
                {{"watch", state->number()}, {"why", begun->sentence}});
            state->note(on_.pool(), resource_change::kind::ended, {});
        }
    }
    return attempt::done;
}

void context_core::settle_watches() {
    std::vector<std::pair<std::shared_ptr<watch_state>, unsigned>> all;
    std::vector<std::uint32_t> ended;  // Meanwhile.
    {
        const std::lock_guard one(watches_lock_);
        all.swap(in_doubt_);
        for (const auto& [state, time] : all)
            if (!watches_.contains(state->number())) ended.push_back(state->number());
    }
    for (const std::uint32_t each : ended)
        (void)unwatch_.on(directory()).within(limits::answer_limit).try_call(id_, each);
    if (all.empty() || closing_.wait_for(limits::return_limit)) return;
    for (const auto& [state, time] : all)
        state->settle(on_.pool(), time);
}

context_core::attempt context_core::reopen_at(const peer& there, resource_id which,
                                              const attribute_view& what) {
    const auto call = on_.procedure<at_directory::reopen>(at_directory::reopen_name);
    const auto answer = call.on(there).within(limits::answer_limit).try_call(id_, which, what);
    if (answer && answer->code == errc::ok) return attempt::done;
    log(log_level::info, "directory", "the directory did not take a resource back",
        {{"resource", number(which)}, {"why", answer ? answer->sentence : answer.sentence()}});
    return failure(answer ? answer->code : answer.code().code);
}

// False: something changed meanwhile.
bool context_core::end_reopening(std::uint64_t kept) {
    std::vector<resource_id> removed;
    {
        const std::scoped_lock both(directory_lock_, kept_lock_);
        if (directory_gone_ || kept_changes_ != kept || closed_) return false;
        removed.swap(removed_);
        searches_of_lost_ = last_search_.load();
        reopens_ = false;
        lost_ = false;
    }
    reopened_.set();
    for (const resource_id each : removed)
        (void)remove_.on(directory()).within(limits::answer_limit).try_call(id_, each);
    return true;
}

}  // namespace amalgam::detail
