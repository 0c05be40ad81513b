#include "directory/resources/registry.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/status.hpp>

namespace amalgam::detail {

namespace {

void check_complete(const attribute_view& what, const char* of = "a new resource") {
    for (const attribute& each : what) {
        if (!each.is_open) continue;
        throw error(errc::invalid,
                    fmt::format("attribute \"{}\" of {} has no value; expected one for each "
                                "attribute; example: add(\"{}\", \"7\")",
                                each.name, of, each.name));
    }
}

error no_id(const char* what, resource_id wanted) {
    if (wanted == resource_id::none)
        return {errc::overloaded, fmt::format("the directory has no id left for a {}", what)};
    return {errc::overloaded, fmt::format("the id {} is no longer free for the {} that had it",
                                          number(wanted), what)};
}

void check_limit(std::size_t now, std::size_t most, const char* of_what) {
    if (now < most) return;
    throw error(
        errc::overloaded,
        fmt::format("this context has {} {} at its directory, which is the limit; end some first",
                    now, of_what));
}

}  // namespace

registry::registry(const directory_limits& limits, std::function<void(watched_change&&)> tell)
    : limits_(limits), tell_(std::move(tell)) {}

registry::~registry() = default;

found_values registry::answer(const resource_store::found& which,
                              const attribute_view& query) const {
    constexpr std::string_view of_context = "context.";
    found_values all{which.id, which.context, {}};
    for (const attribute& each : query) {
        if (!each.is_open) continue;
        const bool is_inherited =
            which.context != resource_id::none && each.name.starts_with(of_context);
        const attribute_view has = is_inherited ? store_.find(which.context).what : which.what;
        if (const auto value = has.find(each.name)) all.values.add(each.name, value->value);
    }
    return all;
}

registry::client& registry::client_of(resource_id context) {
    const auto at = clients_.find(context);
    if (at != clients_.end()) return at->second;
    throw error(errc::not_found,
                fmt::format("the directory has no context {}: it was closed", number(context)));
}

void registry::check_room(const client& whose, const attribute_view& what) const {
    if (what.bytes().size() <= limits_.bytes - std::min(limits_.bytes, whose.bytes)) return;
    throw error(errc::overloaded,
                fmt::format("this context's resources, queries and watches take {} bytes at its "
                            "directory, which is limited to {}; end some first",
                            whose.bytes, limits_.bytes));
}

resource_id registry::open(const attribute_view& what, resource_id wanted) {
    check_complete(what);
    check_limit(contexts(), limits_.contexts, "other contexts");
    const resource_id id = store_.add(resource_id::none, what, wanted);
    if (id == resource_id::none) throw no_id("context", wanted);
    try {
        clients_.try_emplace(id);
    } catch (...) {
        store_.remove(id);
        throw;
    }
    tell_watchers(store_.find(id), resource_change::kind::appeared);
    return id;
}

resource_id registry::open_watcher() {
    check_limit(remote_watchers_, limits_.contexts, "other watching servers");
    const auto id = static_cast<resource_id>(remote_mark | ++last_remote_watcher_);
    clients_.try_emplace(id);
    ++remote_watchers_;
    return id;
}

bool registry::close(resource_id context) {
    const auto at = clients_.find(context);
    if (at == clients_.end()) return false;
    unwatch_all(context);
    clients_.erase(at);
    if (is_remote_watcher(context)) {
        --remote_watchers_;
        return true;
    }
    for (resource_id each = store_.first_of(context); each != resource_id::none;
         each = store_.first_of(context)) {
        tell_watchers(store_.find(each), resource_change::kind::gone);
        store_.remove(each);
    }
    tell_watchers(store_.find(context), resource_change::kind::gone);
    return store_.remove(context);
}

resource_id registry::add(resource_id context, const attribute_view& what, resource_id wanted) {
    client& whose = client_of(context);
    if (is_remote_watcher(context))
        throw error(errc::denied, "another directory may only watch here");
    check_complete(what);
    check_limit(whose.resources, limits_.resources, "resources");
    check_room(whose, what);
    const resource_id id = store_.add(context, what, wanted);
    if (id == resource_id::none) throw no_id("resource", wanted);
    ++whose.resources;
    whose.bytes += what.bytes().size();
    tell_watchers(store_.find(id), resource_change::kind::appeared);
    return id;
}

resource_store::found registry::own(resource_id context, resource_id id) const {
    const resource_store::found which = store_.find(id);
    if (which.id == resource_id::none)
        throw error(errc::not_found, fmt::format("there is no resource {}", number(id)));
    if (id != context && which.context != context)
        throw error(errc::denied, fmt::format("resource {} belongs to context {}, not to {}",
                                              number(id), number(which.context), number(context)));
    return which;
}

void registry::remove(resource_id context, resource_id id) {
    client& whose = client_of(context);
    if (id == context)
        throw error(errc::denied,
                    fmt::format("context {} cannot be removed as a resource; close it instead",
                                number(id)));
    const resource_store::found which = own(context, id);
    --whose.resources;
    whose.bytes -= which.what.bytes().size();
    tell_watchers(which, resource_change::kind::gone);
    store_.remove(id);
}

void registry::set(resource_id context, resource_id id, const attribute_view& changes) {
    client& whose = client_of(context);
    check_complete(changes, "a change");
    const resource_store::found which = own(context, id);
    const attribute_list before(which.what);
    const attribute_list now = attribute_list(before).set_all(changes);
    const std::size_t less = before.bytes().size(), more = now.bytes().size();
    const bool counts = id != context;  // A context's own bytes do not count.
    if (counts) {
        whose.bytes -= less;
        try {
            check_room(whose, now);
            store_.change(id, now);
        } catch (...) {
            whose.bytes += less;
            throw;
        }
        whose.bytes += more;
    } else {
        store_.change(id, now);
    }
    if (watchers_.empty()) return;
    using kind = resource_change::kind;
    const attribute_view old = before;
    const resource_store::found present = store_.find(id);
    std::vector<std::uint64_t> keys{store_.key_of_all};
    for (const attribute_view& all : {old, present.what})
        for (const attribute& each : all)
            keys.push_back(store_.key_of(each));
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    for (const std::uint64_t key : keys)
        tell_those_at(key, present, kind::changed, &old);
}

found_values registry::find(resource_id id, const attribute_view& query) const {
    const resource_store::found which =
        id == resource_id::none ? store_.find_first(query) : store_.find(id);
    if (which.id == resource_id::none || (id != resource_id::none && !which.fits(query))) return {};
    return answer(which, query);
}

store_search::outcome registry::find_first(const attribute_view& query, std::size_t looks,
                                           found_values& into) const {
    using outcome = store_search::outcome;
    const resource_store::found which = store_.find_first(query, looks);
    if (which.id == resource_id::none) return looks == 0 ? outcome::unfinished : outcome::over;
    into = answer(which, query);
    return outcome::found;
}

std::uint32_t registry::start_search(resource_id context, const attribute_view& query) {
    client& whose = client_of(context);
    check_limit(whose.searches.size(), limits_.searches, "running queries");
    check_room(whose, query);
    auto fresh = make_search(query);
    const std::uint32_t number = ++whose.searched;
    const std::size_t bytes = fresh->query().bytes().size();
    whose.searches.emplace(number, std::move(fresh));
    whose.bytes += bytes;
    return number;
}

store_search& registry::search_of(resource_id context, std::uint32_t search) {
    client& whose = client_of(context);
    const auto at = whose.searches.find(search);
    if (at != whose.searches.end()) return *at->second;
    throw error(errc::not_found, "this query has ended, or was stopped");
}

store_search::outcome registry::next(resource_id context, std::uint32_t search, std::size_t looks,
                                     found_values& into) {
    return next(search_of(context, search), looks, into);
}

attribute_view registry::query_of(resource_id context, std::uint32_t search) {
    return search_of(context, search).query();
}

std::unique_ptr<store_search> registry::make_search(const attribute_view& query) {
    return std::make_unique<store_search>(store_, query);
}

store_search::outcome registry::next(store_search& search, std::size_t looks,
                                     found_values& into) const {
    resource_store::found found;
    const auto how = search.next(found, looks);
    if (how == store_search::outcome::found) into = answer(found, search.query());
    return how;
}

void registry::stop_search(resource_id context, std::uint32_t search) {
    client& whose = client_of(context);
    const auto at = whose.searches.find(search);
    if (at == whose.searches.end()) return;
    whose.bytes -= at->second->query().bytes().size();
    whose.searches.erase(at);
}

void registry::watch(resource_id context, std::uint32_t number, const attribute_view& query) {
    client& whose = client_of(context);
    // A server watches on behalf of all its contexts.
    const std::size_t most = is_remote_watcher(context) ? limits_.watches * 64 : limits_.watches;
    check_limit(whose.watches.size(), most, "watches");
    check_room(whose, query);
    auto fresh = std::make_unique<watcher>(
        watcher{context, number, store_.key_in_all(query), attribute_list(query)});
    watcher& one = *fresh;
    if (!whose.watches.emplace(number, std::move(fresh)).second)
        throw error(errc::invalid, fmt::format("this context already has a watch {}", number));
    whose.bytes += one.query.bytes().size();
    try {
        watchers_.emplace(one.key, &one);
        store_search those(store_, query);
        resource_store::found each;
        for (std::size_t told = 0;
             those.next(each, ~std::size_t{0}) == store_search::outcome::found; ++told) {
            check_limit(told, limits_.untold, "pending notifications");
            tell_({context, number, resource_change::kind::appeared, answer(each, query)});
        }
    } catch (...) {
        forget(whose, number);
        throw;
    }
}

void registry::unwatch(resource_id context, std::uint32_t watch) {
    forget(client_of(context), watch);
}

void registry::unwatch_all(resource_id context) {
    client& whose = client_of(context);
    while (!whose.watches.empty())
        forget(whose, whose.watches.begin()->first);
}

void registry::forget(client& whose, std::uint32_t watch) {
    const auto at = whose.watches.find(watch);
    if (at == whose.watches.end()) return;
    for (auto [one, end] = watchers_.equal_range(at->second->key); one != end; ++one) {
        if (one->second != at->second.get()) continue;
        watchers_.erase(one);
        break;
    }
    whose.bytes -= at->second->query.bytes().size();
    whose.watches.erase(at);
}

void registry::tell_watchers(const resource_store::found& which, resource_change::kind what) {
    if (watchers_.empty()) return;
    tell_those_at(store_.key_of_all, which, what);
    for (const attribute& each : which.what)
        tell_those_at(store_.key_of(each), which, what);
}

void registry::tell_those_at(std::uint64_t key, const resource_store::found& which,
                             resource_change::kind what, const attribute_view* before) {
    using kind = resource_change::kind;
    for (auto [one, end] = watchers_.equal_range(key); one != end; ++one) {
        const watcher& who = *one->second;
        const bool fits = which.fits(who.query);
        const bool fitted = before != nullptr &&
                            resource_store::found{which.id, which.context, *before}.fits(who.query);
        if (!fits && !fitted) continue;
        const kind how = before == nullptr ? what
                         : !fitted         ? kind::appeared
                         : !fits           ? kind::gone
                                           : kind::changed;
        tell_({who.context, who.number, how, answer(which, who.query)});
    }
}

}  // namespace amalgam::detail
