#include <algorithm>
#include <exception>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include <amalgam/core/log.hpp>
#include <amalgam/rpc/extension/thrown.hpp>

#include "directory/limits.hpp"
#include "directory/protocol/background.hpp"
#include "directory/server/core.hpp"

namespace amalgam::detail {

// Arrivals and departures of contexts, returning contexts, and other servers.

namespace {
constexpr const char* has_just_begun = "the directory has just started and has no ids yet";
}  // namespace

reply<resource_id> directory_core::open(attribute_view what) {
    // The first id range may still be pending.
    if (!ring_->ids().wait_until_ready(options_.ring.answer_limit))
        return {errc::overloaded, has_just_begun, {}};
    return alone([&] { return open_for_caller(what, resource_id::none); });
}

resource_id directory_core::open_for_caller(attribute_view what, resource_id wanted) {
    const call_context& call = call_context::current();
    if (ended_) throw error(errc::not_found, "the directory has ended");
    if (!lets_in_->caller_is(directory_role::context)) what = {};
    lets_in_->check_owner_of(what);
    const auto before = contexts_of_.find(call.from());
    if (before != contexts_of_.end() && before->second >= limits::max_contexts_of_one)
        throw error(errc::overloaded,
                    fmt::format("this process has {} contexts at this directory, expected one at a "
                                "time; close the earlier ones",
                                before->second));
    claim_if_few();
    const resource_id id = registry_.open(what, wanted);
    try {
        clients_[id].who = call.from();
        keep_looking();
        // It may have disconnected meanwhile, and no further notice will come.
        if (call.canceled()) throw error(errc::canceled, "the context is gone");
        ++contexts_of_[call.from()];
    } catch (...) {
        clients_.erase(id);
        registry_.close(id);
        throw;
    }
    return id;
}

reply<bool> directory_core::reopen(resource_id context, resource_id which, attribute_view what) {
    if (!ring_->ids().wait_until_ready(options_.ring.answer_limit))
        return {errc::overloaded, has_just_begun, {}};
    const bool is_reader = !lets_in_->caller_is(directory_role::context);
    if (which != context && is_reader)
        return {errc::denied,
                fmt::format("{} may search this directory, but not register resources; add it to "
                            "directory_roles::contexts",
                            to_text(call_context::current().who())),
                {}};
    // Here, so that a stranger cannot make us claim ranges for others' resources.
    const auto may = alone([&] {
        if (which != context) check_is(context);
        if (!is_reader) lets_in_->check_owner_of(what);
        return true;
    });
    if (may.code != errc::ok) return may;
    const auto range = static_cast<std::uint32_t>(which) / limits::ids_per_range;
    if (range >= limits::id_ranges || !ring_->ids().own_again(range, is_reader))
        return {errc::denied,
                fmt::format("the id {} does not belong to this directory, which cannot claim it",
                            number(which)),
                {}};
    return alone([&] {
        if (which == context) {
            const auto at = clients_.find(context);  // It may still be registered.
            if (at == clients_.end() || !(at->second.who == call_context::current().from()))
                (void)open_for_caller(what, context);
            return true;
        }
        check_is(context);
        const found_values there = registry_.find(which, {});
        if (there.id == resource_id::none || there.context != context)
            (void)registry_.add(context, what, which);
        return true;
    });
}

void directory_core::close(resource_id context) {
    const auto done = alone([&] {
        check_is(context);
        close_one(context);
        return true;
    });
    if (done.code == errc::ok) remote_watches_->remove_all(context);
}

reply<resource_id> directory_core::open_watcher() {
    return alone([&] {
        const peer& who = call_context::current().from();
        // A returning server has forgotten its earlier registration.
        if (const auto before = servers_.find(who); before != servers_.end())
            close_one(before->second);
        const resource_id id = registry_.open_watcher();
        client& watcher = clients_[id];
        watcher.who = who;
        watcher.is_server = true;
        servers_[who] = id;
        return id;
    });
}

// Only for this user's processes on this host, which share the name.
bool directory_core::make_way() {
    const call_context& call = call_context::current();
    if (!options_.on_make_way || !is_local(call.from().address())) return false;
    const identity who = call.who();
    if (who.kind != identity_kind::process || who.uid != ::geteuid()) return false;
    try {
        options_.on_make_way();
        return true;
    } catch (...) {
        log_thrown_in("directory", "directory_options::on_make_way");
        return false;
    }
}

void directory_core::close_one(resource_id context) {
    const auto at = clients_.find(context);
    const peer who = at->second.who;
    if (at->second.is_server)
        servers_.erase(who);
    else if (const auto its = contexts_of_.find(who); --its->second == 0)
        contexts_of_.erase(its);
    clients_.erase(at);
    spread_.erase(spread_.lower_bound({context, 0}), spread_.upper_bound({context, ~0u}));
    registry_.close(context);
}

void directory_core::close_all_of(const peer& gone) {
    std::vector<resource_id> closed;
    (void)alone([&] {
        for (const auto& [context, whose] : clients_)
            if (whose.who == gone) closed.push_back(context);
        for (const resource_id each : closed) {
            log(log_level::debug, "directory", "a context is gone",
                {{"context", static_cast<std::uint32_t>(each)}});
            close_one(each);
        }
        return true;
    });
    for (const resource_id each : closed)
        remote_watches_->remove_all(each);
}

// ---- unresponsive contexts

void directory_core::keep_looking() {
    if (options_.silence.count() <= 0 || looking_) return;
    post_in_background(on_.pool(), [self = shared_from_this()] { self->look_after_contexts(); });
    looking_ = true;
}

void directory_core::look_after_contexts() {
    while (!stopping_.wait_for(options_.silence / 4)) {
        try {
            std::vector<std::pair<resource_id, peer>> silent;
            {
                const std::lock_guard one(lock_);
                looking_ = !clients_.empty();
                if (!looking_) return;
                for (auto& [id, each] : clients_)
                    if (!std::exchange(each.heard, false) && !each.is_server && !each.who.is_self())
                        silent.emplace_back(id, each.who);
            }
            look_at(silent);
        } catch (const std::exception& why) {  // Out of memory for now.
            rethrow_if_canceled(why);
            log(log_level::warn, "directory", "cannot check the contexts", {{"why", why.what()}});
        }
    }
}

void directory_core::look_at(const std::vector<std::pair<resource_id, peer>>& silent) {
    constexpr std::size_t at_once = 1024;
    for (std::size_t first = 0; first < silent.size(); first += at_once) {
        std::vector<future<std::uint64_t>> asked;
        const std::size_t end = std::min(silent.size(), first + at_once);
        for (std::size_t i = first; i < end; ++i)
            asked.push_back(ping_.on(silent[i].second).within(options_.silence / 2).start(0));
        for (std::size_t i = first; i < end; ++i)
            if (asked[i - first].wait().code == errc::timed_out)
                drop(silent[i].first, silent[i].second);
    }
}

void directory_core::drop(resource_id context, const peer& who) {
    const auto done = alone([&] {
        const auto at = clients_.find(context);
        if (at == clients_.end() || !(at->second.who == who) || at->second.heard) return false;
        close_one(context);
        return true;
    });
    if (!done.value) return;
    log(log_level::warn, "directory", "a context does not answer and is considered gone",
        {{"context", number(context)}});
    remote_watches_->remove_all(context);
    try {
        dropped_.on(who).post();  // It will see this when it resumes.
    } catch (const error&) {
        // Its connection is lost, which it will notice, too.
    }
}

void directory_core::claim_if_few() {
    if (registry_.free_ids() < limits::few_ids) ring_->ids().want();
}

}  // namespace amalgam::detail
