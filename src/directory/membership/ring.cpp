#include "directory/membership/ring.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/hash.hpp>
#include <amalgam/core/log.hpp>

#include "directory/membership/asking.hpp"

namespace amalgam::detail {

namespace {
constexpr std::chrono::milliseconds gather_time{5};  // News within this time is sent together.

}  // namespace

directory_ring::directory_ring(engine& on, const ring_options& options,
                               std::shared_ptr<gate> lets_in, std::weak_ptr<ring_user> here)
    : on_(on),
      options_(options),
      gate_(std::move(lets_in)),
      here_(std::move(here)),
      members_(on.procedure<in_ring::members>(in_ring::members_name)),
      join_(on.procedure<in_ring::join>(in_ring::join_name)),
      tell_(on.procedure<in_ring::tell>(in_ring::tell_name)),
      ping_(on.procedure<in_ring::ping>(in_ring::ping_name)),
      ping_req_(on.procedure<in_ring::ping_req>(in_ring::ping_req_name)),
      compare_(on.procedure<in_ring::compare>(in_ring::compare_name)),
      find_(on.procedure<in_ring::find>(in_ring::find_name)),
      search_(on.procedure<in_ring::search>(in_ring::search_name)),
      next_(on.procedure<in_ring::next>(in_ring::next_name)),
      stop_(on.procedure<in_ring::stop>(in_ring::stop_name)),
      meet_(on.procedure<in_ring::meet>(in_ring::meet_name)),
      answer_(on.procedure<in_ring::answer>(in_ring::answer_name)),
      find_there_(on.procedure<at_directory::find>(at_directory::find_name)),
      packets_refused_(on.counters().get("directory.packets_refused")),
      packets_dropped_(on.counters().get("directory.packets_dropped")),
      work_dropped_(on.counters().get("directory.work_dropped")),
      chance_(options.seed != 0 ? options.seed : random_u64()),
      others_(10 * options.period),
      suspected_(options.period * 3 / 4, options.period * 6) {
    if (options.fanout == 0)
        throw error(errc::invalid,
                    "ring_options::fanout is 0, so no server would be asked, expected 1 or more; "
                    "example: 8");
    self_.key = chance_() | 1;
    self_.version = 1;
    self_.addresses = on.addresses();
}

void directory_ring::start() {
    const auto serve = [&](std::string_view name, auto what, handler run = handler::inline_) {
        served_.serve(shared_from_this(), name, what, run);
    };
    serve(in_ring::members_name, &directory_ring::looked);
    serve(in_ring::join_name, &directory_ring::joined);
    serve(in_ring::tell_name, &directory_ring::told);
    serve(in_ring::ping_name, &directory_ring::is_alive);
    serve(in_ring::ping_req_name, &directory_ring::looked_at, handler::ult);
    serve(in_ring::compare_name, &directory_ring::compared);
    serve(in_ring::find_name, &directory_ring::find_in, handler::ult);
    serve(in_ring::search_name, &directory_ring::search_in, handler::ult);
    serve(in_ring::next_name, &directory_ring::next_of, handler::ult);
    serve(in_ring::stop_name, &directory_ring::stop_here);
    serve(in_ring::meet_name, &directory_ring::met);
    serve(in_ring::answer_name, &directory_ring::answered_by);
    listen();
    run([](directory_ring& me) {
        me.join();
        // Meet servers heard now before claiming ids they may own.
        if (me.options_.medium && me.size() == 1)
            (void)me.has_met_.wait_for(me.options_.claim_time);
        if (me.self().ranges.empty()) me.want_range();
    });
    if (!options_.others.empty()) keep_looking();
}

void directory_ring::stop() noexcept {
    stopping_.set();
    if (options_.medium) options_.medium->listen({});
    served_.end();
}

std::size_t directory_ring::size() const {
    const std::lock_guard one(lock_);
    return others_.size() + 1;
}

std::uint64_t directory_ring::self_key() const {
    const std::lock_guard one(lock_);
    return self_.key;
}

std::vector<std::uint64_t> directory_ring::keys() const {
    const std::lock_guard one(lock_);
    return others_.keys();
}

ring_part directory_ring::all_others() const {
    return {self_key(), 1, 0};
}

std::uint64_t directory_ring::digest() const {
    return others_.digest() + member_table::digest_of(self_);
}

ring_news directory_ring::all() {
    const std::lock_guard one(lock_);
    ring_news known{others_.all(), others_.departures(on_.now())};
    known.came.push_back(self_);
    return known;
}

// ---- membership

void directory_ring::join() {
    for (const std::string& each : options_.others) {
        if (stopping_.is_set()) return;
        try {
            join_by(each);
        } catch (const error& why) {
            log(log_level::warn, "directory", "cannot join another directory",
                {{"address", each}, {"why", why.what()}});
        }
    }
}

void directory_ring::check_can_be_reached() const {
    const std::vector<std::string> addresses = self().addresses;
    if (std::all_of(addresses.begin(), addresses.end(), is_local))
        throw error(errc::invalid,
                    "this directory listens at no address that another host can reach, expected "
                    "one; example: tcp://10.0.0.2:7100");
}

void directory_ring::join_by(const std::string& address) {
    const peer there = on_.lookup(address);
    if (there.is_self()) return;
    if (!is_local(address)) check_can_be_reached();
    gate_->enter(there, gate_role);
    const bool had_others = size() > 1;
    const ring_news fresh = learn({members_.on(there).within(options_.answer_limit)(), {}});
    if (had_others && !fresh.empty()) tell_all(fresh);
    bool has_none = false;
    {
        const std::lock_guard one(lock_);
        ++self_.version;  // Servers that had removed this one accept it again.
        has_none = self_.ranges.empty() && std::exchange(claiming_, true) == false;
    }
    // Join together with the claim, so that all are told once.
    std::optional<std::uint32_t> range;
    if (has_none && (range = some_free_range())) {
        const std::lock_guard one(lock_);
        self_.ranges.push_back(*range);
    }
    if (range) run([claimed = *range](directory_ring& me) { me.claim_now(claimed); });
    join_.on(there).within(options_.answer_limit)(self());
}

member directory_ring::self() const {
    const std::lock_guard one(lock_);
    return self_;
}

std::vector<member> directory_ring::looked() {
    return all().came;
}

void directory_ring::joined(member who) {
    const ring_news fresh = learn({{std::move(who)}, {}});
    if (!fresh.empty()) tell_all(fresh);
}

ring_news directory_ring::learn(const ring_news& news) {
    ring_news fresh;
    bool said_wrong = false, has_to_leave = false;
    std::vector<member> claims_ours;
    const clock::time_point now = on_.now();
    {
        const std::lock_guard one(lock_);
        for (const member& each : news.came) {
            if (each.key == self_.key) {
                said_wrong = (each != self_ && contradict(each.version)) || said_wrong;
                continue;
            }
            if (!is_proper(each)) continue;
            if (std::any_of(settled_.begin(), settled_.end(), [&](std::uint32_t range) {
                    return contains(each.ranges, range) && !contains(each.settled, range);
                }))
                claims_ours.push_back(each);
            has_to_leave = share_range(each) || has_to_leave;
            if (others_.learn(each, now) == member_table::learnt::nothing) continue;
            suspected_.refute(each.key, each.version);
            fresh.came.push_back(each);
        }
        for (const departure& each : news.gone) {
            if (each.key == self_.key) {
                if (each.version > self_.version) (void)contradict(each.version);
                said_wrong = true;
            }
            if (!others_.remove(each, now)) continue;
            reached_.erase(each.key);
            suspected_.clear(each.key);
            fresh.gone.push_back(each);
        }
    }
    for (const member& each : claims_ours)
        run_for_others([each](directory_ring& me) { me.object(each); });
    if (has_to_leave) want_range();
    if (said_wrong) run_for_others([](directory_ring& me) { me.say_that_it_is_here(); });
    const auto here = here_.lock();
    for (const departure& each : fresh.gone)
        if (here) here->lose_server(each.key);
    if (!fresh.came.empty()) {
        has_met_.set();
        if (here) here->see_servers(keys());
        keep_looking();
    }
    return fresh;
}

// Only this server sets its version. A false claim about it stands until this server publishes a
// higher version.
bool directory_ring::contradict(std::uint32_t version) {
    if (version < self_.version || version >= ~0u - 1) return false;
    self_.version = version + 1;
    return true;
}

void directory_ring::tell_all(const ring_news& news) {
    {
        const std::lock_guard one(lock_);
        untold_.came.insert(untold_.came.end(), news.came.begin(), news.came.end());
        untold_.gone.insert(untold_.gone.end(), news.gone.begin(), news.gone.end());
        if (std::exchange(telling_, true)) return;
    }
    run([](directory_ring& me) { me.tell_now(); });
}

void directory_ring::tell_now() {
    (void)stopping_.wait_for(gather_time);
    ring_news news;
    {
        const std::lock_guard one(lock_);
        news = std::exchange(untold_, {});
        telling_ = false;
    }
    pass_on(all_others(), news);
}

// A server asked to handle a part must be in it, and leaves itself out of what it delegates. So
// queries never loop, or reach a server twice, whatever addresses members claim.
void directory_ring::check_is_in(const ring_part& part) const {
    if (part.holds(self_key())) return;
    throw error(errc::not_found,
                "this directory is not in that part of the ring; the directory that was at this "
                "address is gone");
}

void directory_ring::told(ring_part part, ring_news news) {
    check_is_in(part);
    std::erase_if(news.came, [](const member& each) { return !is_proper(each); });
    learn(news);
    run_for_others([part, news = std::move(news)](directory_ring& me) { me.pass_on(part, news); });
}

std::vector<delegation> directory_ring::cut(const ring_part& part, std::uint64_t without) const {
    const std::lock_guard one(lock_);
    return others_.split_around(without, part, options_.fanout);
}

void directory_ring::pass_on(const ring_part& part, const ring_news& news) {
    asking all(*this, part, options_.answer_limit,
               [&](const peer& there, const ring_part& its, std::chrono::nanoseconds within) {
                   return tell_.on(there).within(within).start(its, news);
               });
    while (all.next()) {
    }
}

void directory_ring::remove(const departure& what) {
    const ring_news fresh = learn({{}, {what}});
    if (fresh.empty()) return;
    log(log_level::info, "directory", "another directory is gone", {{"key", what.key}});
    tell_all(fresh);
}

void directory_ring::forget(const peer& lost) {
    const std::lock_guard one(lock_);
    std::erase_if(reached_, [&](const auto& each) { return each.second == lost; });
}

std::optional<peer> directory_ring::reach(std::uint64_t key, std::chrono::nanoseconds within) {
    std::vector<std::string> addresses;
    {
        const std::lock_guard one(lock_);
        if (const auto at = reached_.find(key); at != reached_.end()) return at->second;
        const member* const who = others_.find(key);
        if (who == nullptr) return std::nullopt;
        addresses = who->addresses;
    }
    // A shared-memory name may exist on every host: it goes last.
    std::stable_partition(addresses.begin(), addresses.end(),
                          [](const std::string& each) { return !is_local(each); });
    for (const std::string& each : addresses) {
        const result<peer> found = on_.try_lookup(each);
        if (!found || found->is_self()) continue;
        try {
            gate_->enter(*found, gate_role, within);
        } catch (const error& why) {
            log(log_level::info, "directory", "cannot ask another directory",
                {{"address", each}, {"why", why.what()}});
            continue;
        }
        const std::lock_guard one(lock_);
        if (others_.find(key) != nullptr) reached_[key] = *found;
        return *found;
    }
    return std::nullopt;
}

}  // namespace amalgam::detail
