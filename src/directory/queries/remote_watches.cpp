#include "directory/queries/remote_watches.hpp"

#include <exception>

#include <amalgam/core/log.hpp>
#include <amalgam/tasks/ult.hpp>

namespace amalgam::detail {

remote_watches::remote_watches(engine& on, std::size_t may_hold,
                               std::chrono::milliseconds answer_limit,
                               std::function<void(watched_change&&)> tell)
    : on_(on),
      most_bytes_(may_hold),
      answer_limit_(answer_limit),
      tell_(std::move(tell)),
      open_watcher_(on.procedure<in_ring::open_watcher>(in_ring::open_watcher_name)),
      watch_(on.procedure<at_directory::watch>(at_directory::watch_name)),
      unwatch_(on.procedure<at_directory::unwatch>(at_directory::unwatch_name)),
      told_dropped_(on.counters().get("directory.told_dropped")) {}

void remote_watches::add(resource_id context, std::uint32_t number, const attribute_view& query) {
    {
        const std::lock_guard one(lock_);
        const std::uint32_t fresh = ++last_;
        watches_[fresh] = {context, number, attribute_list(query), {}};
        numbers_[{context, number}] = fresh;
    }
    if (const auto servers = view_.lock()) see(servers->keys());
}

void remote_watches::see(const std::vector<std::uint64_t>& servers) {
    std::vector<std::uint64_t> behind;
    {
        const std::lock_guard one(lock_);
        if (watches_.empty()) return;
        for (const std::uint64_t each : servers) {
            host& there = servers_[each];
            if (there.has.size() == watches_.size() || std::exchange(there.busy, true)) continue;
            behind.push_back(each);
        }
    }
    for (const std::uint64_t each : behind)
        post(on_.pool(), [self = shared_from_this(), each] { self->bring_up_to_date(each); });
}

void remote_watches::bring_up_to_date(std::uint64_t server) {
    try {
        while (tell_one(server)) {
        }
    } catch (const error& why) {  // Retried when the servers are next seen.
        log(log_level::debug, "directory", "cannot tell another directory about a watch",
            {{"server", server}, {"why", why.what()}});
    }
    const std::lock_guard one(lock_);
    if (const auto at = servers_.find(server); at != servers_.end()) at->second.busy = false;
}

bool remote_watches::tell_one(std::uint64_t server) {
    std::uint32_t number = 0;
    resource_id watcher = resource_id::none;
    attribute_list query;
    {
        const std::lock_guard one(lock_);
        const auto at = servers_.find(server);
        if (at == servers_.end()) return false;
        watcher = at->second.watcher;
        for (const auto& [each, what] : watches_) {
            if (at->second.has.contains(each)) continue;
            number = each;
            query = what.query;
            break;
        }
    }
    const auto peers = peers_.lock();
    if (number == 0 || !peers) return false;
    const auto there = peers->reach(server);
    if (!there) return false;
    if (watcher == resource_id::none) {
        // If another server has, or claims, its address now, a watcher there would get that
        // server's reports.
        if (!peers->is_at(*there, server)) return false;
        watcher = open_watcher_.on(*there).within(answer_limit_)().take();
        const std::lock_guard one(lock_);
        const auto at = servers_.find(server);
        if (at == servers_.end()) return false;
        at->second.watcher = watcher;
        at->second.who = *there;
    }
    {
        // Before its first report.
        const std::lock_guard one(lock_);
        const auto at = servers_.find(server);
        if (at == servers_.end() || !watches_.contains(number)) return at != servers_.end();
        at->second.has.insert(number);
        doubt(server, number);
    }
    try {
        watch_.on(*there).within(answer_limit_)(watcher, number, query).take();
    } catch (const error& why) {
        const std::lock_guard one(lock_);
        const auto at = servers_.find(server);
        if (at == servers_.end()) throw;
        at->second.has.erase(number);
        if (why.code() == errc::denied && at->second.watcher == watcher) {
            // It has dropped this server meanwhile, with all its watches.
            at->second.watcher = resource_id::none;
            at->second.has.clear();
        }
        throw;
    }
    return true;
}

void remote_watches::remove(resource_id context, std::uint32_t number) {
    std::uint32_t which = 0;
    {
        const std::lock_guard one(lock_);
        const auto at = numbers_.find({context, number});
        if (at == numbers_.end()) return;
        which = at->second;
    }
    forget(which);
}

void remote_watches::remove_all(resource_id context) {
    std::vector<std::uint32_t> those;
    {
        const std::lock_guard one(lock_);
        for (auto at = numbers_.lower_bound({context, 0});
             at != numbers_.end() && at->first.first == context; ++at)
            those.push_back(at->second);
    }
    for (const std::uint32_t each : those)
        forget(each);
}

void remote_watches::forget(std::uint32_t watch) {
    std::vector<std::pair<peer, resource_id>> whom;
    {
        const std::lock_guard one(lock_);
        const auto at = watches_.find(watch);
        if (at == watches_.end()) return;
        numbers_.erase({at->second.context, at->second.number});
        let_go_all(at->second);
        watches_.erase(at);
        for (auto& [key, there] : servers_)
            if (there.has.erase(watch) != 0) whom.emplace_back(there.who, there.watcher);
    }
    for (const auto& [who, watcher] : whom) {
        try {
            unwatch_.on(who).post(watcher, watch);
        } catch (const std::exception&) {
            // The watch ends with the connection.
        }
    }
}

void remote_watches::lose(const peer& who) {
    const std::lock_guard one(lock_);
    for (auto& [key, there] : servers_) {
        if (!(there.who == who)) continue;
        there.watcher = resource_id::none;
        there.has.clear();
        there.who = {};
    }
}

void remote_watches::doubt(std::uint64_t server, std::uint32_t watch) {
    const auto at = watches_.find(watch);
    if (at == watches_.end()) return;
    const auto by = at->second.told_by.find(server);
    if (by == at->second.told_by.end()) return;
    for (auto& [id, each] : by->second)
        each.in_doubt = true;
}

// The server has reported everything it has.
void remote_watches::settle(std::uint64_t server, std::uint32_t watch) {
    std::vector<watched_change> gone;
    {
        const std::lock_guard one(lock_);
        const auto at = watches_.find(watch);
        if (at == watches_.end()) return;
        auto& those = at->second.told_by[server];
        for (auto each = those.begin(); each != those.end();) {
            if (!each->second.in_doubt) {
                ++each;
                continue;
            }
            let_go(server, each->second.what);
            gone.push_back({at->second.context, at->second.number, resource_change::kind::gone,
                            std::move(each->second.what)});
            each = those.erase(each);
        }
    }
    for (watched_change& each : gone)
        tell_(std::move(each));
}

void remote_watches::lose(std::uint64_t server) {
    std::vector<watched_change> gone;
    {
        const std::lock_guard one(lock_);
        for (auto& [number, what] : watches_) {
            const auto at = what.told_by.find(server);
            if (at == what.told_by.end()) continue;
            for (auto& [id, each] : at->second) {
                let_go(server, each.what);
                gone.push_back(
                    {what.context, what.number, resource_change::kind::gone, std::move(each.what)});
            }
            what.told_by.erase(at);
        }
        servers_.erase(server);
    }
    for (watched_change& each : gone)
        tell_(std::move(each));
}

void remote_watches::let_go(std::uint64_t server, const found_values& which) noexcept {
    told_bytes_ -= counted(which);
    if (const auto at = servers_.find(server); at != servers_.end())
        at->second.told_bytes -= counted(which);
}

void remote_watches::let_go_all(const watched& what) noexcept {
    for (const auto& [server, those] : what.told_by)
        for (const auto& [id, each] : those)
            let_go(server, each.what);
}

bool remote_watches::note(host& from, std::map<resource_id, told>& those,
                          resource_change::kind& what, const found_values& which) {
    using kind = resource_change::kind;
    const auto known = those.find(which.id);
    const std::size_t before = known != those.end() ? counted(known->second.what) : 0;
    const std::size_t now = what != kind::gone ? counted(which) : 0;
    const bool is_too_much = told_bytes_ - before + now > most_bytes_ ||
                             from.told_bytes - before + now > most_bytes_ / 2;
    if (is_too_much && now > before) {
        told_dropped_.add();
        return false;
    }
    if (what == kind::gone && known == those.end()) return false;
    told_bytes_ += now - before;
    from.told_bytes += now - before;
    if (what == kind::gone) {
        those.erase(known);
    } else if (known == those.end()) {
        those.emplace(which.id, told{which, false});
        what = kind::appeared;
    } else {
        const bool news = what == kind::changed || !is_same(known->second.what, which);
        known->second = {which, false};
        what = kind::changed;
        return news;
    }
    return true;
}

void remote_watches::changed(const peer& by, std::uint64_t server, std::uint32_t watch,
                             resource_change::kind what, const found_values& which) {
    using kind = resource_change::kind;
    watched_change change;
    {
        const std::lock_guard one(lock_);
        const auto from = servers_.find(server);
        if (from == servers_.end() || !(from->second.who == by)) return;  // Or from a stranger.
        const bool is_all = which.id == resource_id::none && what == kind::appeared;
        if (which.id == resource_id::none && !is_all) {
            // It had too many reports pending and dropped the watches: ask again.
            from->second.has.clear();
            return;
        }
        const auto at = watches_.find(watch);
        if (what >= kind::ended || at == watches_.end() || !from->second.has.contains(watch))
            return;
        if (!is_all) {
            if (!note(from->second, at->second.told_by[server], what, which)) return;
            change = {at->second.context, at->second.number, what, which};
        }
    }
    if (which.id == resource_id::none) return settle(server, watch);
    tell_(std::move(change));
}

}  // namespace amalgam::detail
