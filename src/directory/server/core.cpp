#include "directory/server/core.hpp"

#include <algorithm>
#include <iterator>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/log.hpp>
#include <amalgam/rpc/extension/inside.hpp>
#include <amalgam/rpc/metrics.hpp>
#include <amalgam/tasks/ult.hpp>

#include "directory/limits.hpp"

namespace amalgam::detail {

namespace {

/// Destroys a search of the registry with the lock held, even if its ULT is canceled.
struct ends_locked {
    std::unique_lock<std::mutex>& lock;
    std::unique_ptr<store_search>& search;

    ~ends_locked() {
        if (!lock.owns_lock()) lock.lock();
        search.reset();
    }
};
}  // namespace

directory_core::directory_core(engine& on, const directory_options& options)
    : on_(on),
      options_(options),
      lets_in_(std::make_shared<role_policy>(on, "directory", options.roles)),
      change_(on.procedure<at_context::change>(at_context::change_name)),
      change_there_(on.procedure<in_ring::change>(in_ring::change_name)),
      dropped_(on.procedure<at_context::dropped>(at_context::dropped_name)),
      ping_(on.procedure<std::uint64_t(std::uint64_t)>("amalgam.ping")),
      registry_(options.limits, [this](watched_change&& change) { note(std::move(change)); }) {
    refuse_secret();
}

void directory_core::start() {
    // Until there are contexts it refuses everybody.
    define_first(on_.core(), at_directory::close_name, "a directory_server", [&] {
        served_.serve(shared_from_this(), at_directory::close_name, &directory_core::close,
                      handler::inline_, directory_role::reader);
    });
    try {
        start_rest();
    } catch (...) {
        stop();
        throw;
    }
}

void directory_core::start_rest() {
    ring_ = std::make_shared<directory_ring>(on_, options_.ring, lets_in_, weak_from_this());
    numbers_ = metrics_of(on_).add_group([this](metric_writer& into) {
        into.add({"amalgam_directory_contexts", "Contexts that are open at this directory."}, {},
                 static_cast<double>(contexts()));
        into.add({"amalgam_directory_resources", "Resources of this directory."}, {},
                 static_cast<double>(resources()));
        into.add({"amalgam_directory_servers", "Directories known, with this one."}, {},
                 static_cast<double>(servers()));
    });
    remote_watches_ =
        std::make_shared<remote_watches>(on_, options_.limits.bytes, options_.ring.answer_limit,
                                         [self = weak_from_this()](watched_change&& change) {
                                             if (const auto me = self.lock())
                                                 (void)me->alone([&] {
                                                     // If two resources have the id, this server's
                                                     // counts, as in find().
                                                     if (!me->registry_.has(change.which.id))
                                                         me->note(std::move(change));
                                                     return true;
                                                 });
                                         });
    remote_watches_->start(std::shared_ptr<const membership_view>(ring_, &ring_->view()),
                           std::shared_ptr<ring_peers>(ring_, &ring_->peers()));
    const auto serve = [&](directory_role to, std::string_view name, auto what,
                           handler run = handler::inline_) {
        served_.serve(shared_from_this(), name, what, run, to);
    };
    using role = directory_role;
    serve(role::reader, at_directory::open_name, &directory_core::open, handler::ult);
    serve(role::reader, at_directory::reopen_name, &directory_core::reopen, handler::ult);
    serve(role::context, at_directory::add_name, &directory_core::add);
    serve(role::context, at_directory::remove_name, &directory_core::remove);
    serve(role::context, at_directory::set_name, &directory_core::set);
    serve(role::reader, at_directory::find_name, &directory_core::find);
    serve(role::reader, at_directory::find_long_name, &directory_core::find_long, handler::ult);
    serve(role::reader, at_directory::find_elsewhere_name, &directory_core::find_elsewhere,
          handler::ult);
    serve(role::reader, at_directory::search_name, &directory_core::search);
    serve(role::reader, at_directory::next_name, &directory_core::next, handler::ult);
    serve(role::reader, at_directory::stop_name, &directory_core::stop_search);
    serve(role::reader, at_directory::watch_name, &directory_core::watch);
    serve(role::reader, at_directory::unwatch_name, &directory_core::unwatch);
    serve(role::anyone, at_directory::make_way_name, &directory_core::make_way);
    serve(role::member, in_ring::open_watcher_name, &directory_core::open_watcher);
    serve(role::member, in_ring::change_name, &directory_core::remote_change);
    losses_ = on_.on_peer_lost([self = weak_from_this()](const peer& who, status) {
        const auto me = self.lock();
        if (!me) return;
        me->close_all_of(who);
        me->ring_->peers().forget(who);
        me->remote_watches_->lose(who);
    });
    ring_->start();
}

void directory_core::stop() noexcept {
    numbers_.reset();
    stopping_.set();
    lets_in_->end();
    if (ring_) ring_->stop();
    losses_.end();
    served_.end();
    tell_end();
}

// Contexts notice the loss of a process, but not the end of a directory whose engine goes on.
void directory_core::tell_end() noexcept {
    std::unordered_map<resource_id, client> all;
    {
        const std::lock_guard one(lock_);
        ended_ = true;
        all.swap(clients_);
        contexts_of_.clear();
    }
    for (const auto& [context, each] : all) {
        if (each.is_server) continue;
        try {
            dropped_.on(each.who).post();
        } catch (const std::exception&) {
            // Its connection is lost, which it notices; or its next call will fail.
        }
    }
}

void directory_core::check_is(resource_id context) {
    const auto at = clients_.find(context);
    if (at != clients_.end() && at->second.who == call_context::current().from()) {
        at->second.heard = true;
        return;
    }
    throw error(errc::denied, fmt::format("the caller is not context {}, or its context was closed",
                                          number(context)));
}

void directory_core::remote_change(std::uint64_t server, std::uint32_t watch,
                                   resource_change::kind what, found_values which) {
    remote_watches_->changed(call_context::current().from(), server, watch, what, which);
}

reply<resource_id> directory_core::add(resource_id context, attribute_view what) {
    return alone([&] {
        check_is(context);
        lets_in_->check_owner_of(what);
        claim_if_few();
        return registry_.add(context, what);
    });
}

reply<bool> directory_core::remove(resource_id context, resource_id id) {
    return alone([&] {
        check_is(context);
        registry_.remove(context, id);
        return true;
    });
}

reply<bool> directory_core::set(resource_id context, resource_id id, attribute_view changes) {
    return alone([&] {
        check_is(context);
        lets_in_->check_owner_of(changes);
        registry_.set(context, id, changes);
        return true;
    });
}

found_values directory_core::find(resource_id id, attribute_view query) {
    const std::lock_guard one(lock_);
    if (id != resource_id::none) return registry_.find(id, query);
    found_values found;
    const auto how = registry_.find_first(query, limits::search_turn, found);
    if (how == store_search::outcome::unfinished) found.context = not_looked_at_all;
    return found;
}

found_values directory_core::find_long(attribute_view query) {
    return find_here(query);
}

part_answer directory_core::find_elsewhere(resource_id id, attribute_view query) {
    return ring_->queries().find(id, query);
}

reply<std::uint32_t> directory_core::search(resource_id context, attribute_view query) {
    return alone([&] {
        check_is(context);
        return registry_.start_search(context, query);
    });
}

reply<next_answer> directory_core::next(resource_id context, std::uint32_t search) {
    for (;;) {
        next_answer answer;
        std::shared_ptr<spread> elsewhere;
        attribute_list query;
        auto outcome = alone([&] {
            check_is(context);
            const auto how = registry_.next(context, search, limits::search_turn, answer.found);
            if (how != store_search::outcome::over) return how;
            auto& state = spread_[{context, search}];
            if (state == nullptr) state = std::make_shared<spread>();
            if (state->busy)
                throw error(errc::invalid,
                            "a query was asked for two answers at once; wait for one before asking "
                            "for the next");
            state->busy = true;
            elsewhere = state;
            query = attribute_list(registry_.query_of(context, search));
            return how;
        });
        if (outcome.code != errc::ok) return {outcome.code, std::move(outcome.sentence), {}};
        if (elsewhere != nullptr)
            return {errc::ok, {}, next_elsewhere({context, search}, elsewhere, query)};
        if (outcome.value == store_search::outcome::found) return {errc::ok, {}, std::move(answer)};
        this_task::yield();
    }
}

void directory_core::gather(const std::shared_ptr<spread>& into, const attribute_list& query) {
    std::uint32_t silent = 1;
    std::unordered_set<std::uint64_t> heard;
    try {
        silent = ring_->queries().search(query, [&](std::vector<first_answer>&& some) {
            // Keep one first answer per server, so that its next ones are asked for once.
            std::erase_if(
                some, [&](const first_answer& each) { return !heard.insert(each.server).second; });
            std::unique_lock one(lock_);
            if (!into->stopped) {
                std::move(some.begin(), some.end(), std::back_inserter(into->others));
                return into->changed.set();
            }
            one.unlock();
            for (const first_answer& each : some)
                ring_->queries().stop(each);
        });
    } catch (const std::exception& why) {
        log(log_level::debug, "directory", "a search of other directories failed",
            {{"why", why.what()}});
    }
    const std::lock_guard one(lock_);
    into->gathering = false;
    into->silent += silent;
    into->changed.set();
}

next_answer directory_core::next_elsewhere(const search_key& which,
                                           const std::shared_ptr<spread>& state,
                                           const attribute_list& query) {
    if (!std::exchange(state->asked, true)) {
        state->gathering = true;
        amalgam::post(on_.pool(),
                      [self = shared_from_this(), state, query] { self->gather(state, query); });
    }
    next_answer answer{true, {}};
    std::unique_lock one(lock_);
    while (answer.over && (!state->others.empty() || state->gathering)) {
        if (state->others.empty()) {
            state->changed.reset();
            one.unlock();
            state->changed.wait();
            one.lock();
            continue;
        }
        first_answer first = std::move(state->others.front());
        state->others.pop_front();
        if (first.found.id != resource_id::none) {
            answer = {false, std::exchange(first.found, {})};
        } else {
            one.unlock();
            answer = ring_->queries().next(first);
            one.lock();
            state->silent += std::exchange(answer.silent, 0);
        }
        if (!answer.over) state->others.push_back(std::move(first));  // Round-robin.
    }
    state->busy = false;
    answer.silent = state->silent;
    if (answer.over) end_search(which);
    return answer;
}

void directory_core::end_search(const search_key& which) {
    spread_.erase(which);
    if (clients_.contains(which.first)) registry_.stop_search(which.first, which.second);
}

void directory_core::stop_search(resource_id context, std::uint32_t search) {
    std::shared_ptr<spread> elsewhere;
    (void)alone([&] {
        check_is(context);
        if (const auto at = spread_.find({context, search}); at != spread_.end())
            elsewhere = at->second;
        end_search({context, search});
        return true;
    });
    if (elsewhere == nullptr) return;
    std::deque<first_answer> those;
    {
        const std::lock_guard one(lock_);
        elsewhere->stopped = true;
        those.swap(elsewhere->others);
    }
    for (const first_answer& each : those)
        ring_->queries().stop(each);
}

found_values directory_core::find_here(const attribute_view& query) {
    using outcome = store_search::outcome;
    found_values found;
    std::unique_lock one(lock_);
    if (registry_.find_first(query, limits::search_turn, found) != outcome::unfinished)
        return found;
    auto search = registry_.make_search(query);
    const ends_locked it{one, search};
    while (registry_.next(*search, limits::search_turn, found) == outcome::unfinished) {
        one.unlock();
        this_task::yield();
        one.lock();
    }
    return found;
}

std::optional<first_answer> directory_core::search_here(const attribute_view& query) {
    first_answer first;
    std::unique_lock one(lock_);
    auto search = registry_.make_search(query);
    const ends_locked it{one, search};
    for (;;) {
        const auto how = registry_.next(*search, limits::search_turn, first.found);
        if (how == store_search::outcome::over) return std::nullopt;
        if (how == store_search::outcome::found) break;
        one.unlock();
        this_task::yield();
        one.lock();
    }
    first.search = remote_searches_.keep(std::move(search), on_.now());
    return first;
}

next_answer directory_core::next_here(std::uint64_t search) {
    for (;;) {
        next_answer answer;
        {
            const std::lock_guard one(lock_);
            if (!remote_searches_.has(search)) return {true, {}, 1};  // The request came too late.
            const auto how =
                remote_searches_.next(search, limits::search_turn, on_.now(), answer.found);
            answer.over = how == store_search::outcome::over;
            if (how != store_search::outcome::unfinished) return answer;
        }
        this_task::yield();
    }
}

void directory_core::stop_here(std::uint64_t search) {
    const std::lock_guard one(lock_);
    remote_searches_.stop(search);
}

void directory_core::own_range(std::uint32_t range, bool fresh) {
    const std::lock_guard one(lock_);
    registry_.own_range(range);
    if (!fresh) registry_.retire_range(range);
}

void directory_core::retire_range(std::uint32_t range) {
    const std::lock_guard one(lock_);
    registry_.retire_range(range);
}

reply<bool> directory_core::watch(resource_id context, std::uint32_t number, attribute_view query) {
    bool of_context = false;
    auto done = alone([&] {
        check_is(context);
        registry_.watch(context, number, query);
        of_context = !clients_[context].is_server;
        if (!of_context)  // End of existing ones.
            note({context, number, resource_change::kind::appeared, {}});
        return true;
    });
    if (done.code == errc::ok && of_context) remote_watches_->add(context, number, query);
    return done;
}

void directory_core::unwatch(resource_id context, std::uint32_t number) {
    const auto done = alone([&] {
        check_is(context);
        registry_.unwatch(context, number);
        return true;
    });
    if (done.code == errc::ok) remote_watches_->remove(context, number);
}

void directory_core::note(watched_change&& change) {
    const auto at = clients_.find(change.watcher);
    if (at == clients_.end()) return;  // It is being removed.
    client& whom = at->second;
    if (whom.missed) return;
    if (!whom.telling) {
        to_tell_.push_back(change.watcher);
        whom.telling = true;
    }
    const std::size_t bytes = change.which.values.bytes().size();
    const bool has_room = whom.untold.size() < options_.limits.untold &&
                          whom.untold_bytes + bytes <= options_.limits.bytes;
    whom.untold_bytes = has_room ? whom.untold_bytes + bytes : 0;
    if (has_room) {
        whom.untold.push_back(std::move(change));
    } else {
        whom.untold.clear();
        whom.missed = true;
    }
}

void directory_core::tell(resource_id context) {
    for (;;) {
        peer whom;
        bool is_server = false, ended = false;
        std::deque<watched_change> changes;
        {
            const std::lock_guard one(lock_);
            const auto at = clients_.find(context);
            if (at == clients_.end()) return;
            whom = at->second.who;
            is_server = at->second.is_server;
            changes.swap(at->second.untold);
            at->second.untold_bytes = 0;
            if (std::exchange(at->second.missed, false)) {
                registry_.unwatch_all(context);
                changes.emplace_back();
                ended = true;
            }
            if (changes.empty()) {
                at->second.telling = false;
                return;
            }
        }
        if (ended) remote_watches_->remove_all(context);
        try {
            for (const watched_change& each : changes) {
                if (is_server) {
                    change_there_.on(whom).post(ring_->view().key(), each.watch, each.what,
                                                each.which);
                } else {
                    change_.on(whom).post(each.watch, each.what, each.which);
                }
            }
        } catch (const error& why) {  // It is gone, or will be.
            log(log_level::debug, "directory", "cannot tell a context about a change",
                {{"context", number(context)}, {"why", why.what()}});
            return;
        }
    }
}

std::size_t directory_core::contexts() const {
    const std::lock_guard one(lock_);
    return registry_.contexts();
}

std::size_t directory_core::resources() const {
    const std::lock_guard one(lock_);
    return registry_.resources();
}

}  // namespace amalgam::detail

namespace amalgam {

directory_server::directory_server(engine& on, directory_options options)
    : core_(std::make_shared<detail::directory_core>(on, options)) {
    core_->start();
}

directory_server::~directory_server() {
    core_->stop();
}

std::size_t directory_server::contexts() const {
    return core_->contexts();
}

std::size_t directory_server::resources() const {
    return core_->resources();
}

std::size_t directory_server::servers() const {
    return core_->servers();
}

}  // namespace amalgam
