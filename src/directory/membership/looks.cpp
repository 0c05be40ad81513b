#include <algorithm>
#include <exception>
#include <utility>

#include <amalgam/core/log.hpp>

#include "directory/membership/ring.hpp"

namespace amalgam::detail {

// Failure detection. Each server checks the next two of the ring: directly, then through some
// others. A server that nobody reaches is suspected, and counts as gone unless it refutes that in
// time.

namespace {
constexpr std::size_t looked_after = 2;  // Detects two neighbors failing together.
constexpr std::size_t helpers = suspicions::enough;
constexpr unsigned rounds_between_looks = 10;

bool nobody_listens(errc why) {
    return why == errc::unreachable || why == errc::disconnected || why == errc::closed;
}
}  // namespace

alive_answer directory_ring::is_alive(std::uint64_t who, std::uint32_t suspected) {
    bool refutes = false;
    alive_answer answer;
    {
        const std::lock_guard one(lock_);
        refutes = suspected == self_.version;
        if (refutes) health_.worse();
        answer = {others_.find(who) != nullptr, self_.key, digest()};
    }
    if (refutes) run_for_others([](directory_ring& me) { me.say_that_it_is_here(); });
    return answer;
}

sign directory_ring::looked_at(std::uint64_t who, std::uint32_t suspected) {
    member which;
    {
        const std::lock_guard one(lock_);
        const member* const known = others_.find(who);
        if (known == nullptr) return sign::unknown;
        which = *known;
    }
    return look_at(which, suspected,
                   std::min<std::chrono::nanoseconds>(left(), options_.period / 4));
}

void directory_ring::keep_looking() {
    {
        const std::lock_guard one(lock_);
        if (std::exchange(looking_, true)) return;
    }
    run([](directory_ring& me) { me.look_after_next(); });
}

void directory_ring::look_after_next() {
    unsigned round = 0;
    std::chrono::nanoseconds pause = options_.period;
    while (!stopping_.wait_for(pause)) {
        std::vector<member> next;
        bool alone = false;
        {
            const std::lock_guard one(lock_);
            alone = others_.size() == 0;
            for (std::size_t i = 1; i <= std::min(looked_after, others_.size()); ++i) {
                const member& each = *others_.after(self_.key, i);
                if (looked_after_.insert(each.key).second) next.push_back(each);
            }
            pause = health_.scaled(options_.period);
        }
        for (member& each : next) {
            run([each = std::move(each)](directory_ring& me) {
                try {
                    while (me.look_after(each) && !me.stopping_.wait_for(me.options_.period / 4)) {
                    }
                } catch (const std::exception& why) {  // Most likely out of memory.
                    log(log_level::warn, "directory", "cannot check another directory",
                        {{"key", each.key}, {"why", why.what()}});
                }
                const std::lock_guard one(me.lock_);
                me.looked_after_.erase(each.key);
            });
        }
        if (const auto here = here_.lock()) here->see_servers(keys());
        if (alone || ++round % rounds_between_looks == 0) look_for_lost();
    }
}

void directory_ring::look_for_lost() {
    for (const std::string& each : options_.others) {
        {
            const std::lock_guard one(lock_);
            if (others_.has_address(each)) continue;
        }
        try {
            join_by(each);
        } catch (const error&) {
            // Still not there.
        }
    }
}

sign directory_ring::look_at(const member& who, std::uint32_t suspected,
                             std::chrono::nanoseconds within) {
    constexpr int attempts = 2;  // A connection may have broken long ago.
    const clock::time_point until = on_.now() + within;
    for (int i = 0; i < attempts && !stopping_.is_set(); ++i) {
        const auto there = reach(who.key, until - on_.now());
        if (there) {
            const auto answer =
                ping_.on(*there).within(until - on_.now()).try_call(self_key(), suspected);
            std::uint64_t mine = 0;
            {
                const std::lock_guard one(lock_);
                if (!answer || answer->key != who.key) reached_.erase(who.key);
                mine = digest();
            }
            if (answer && answer->key != who.key) return sign::replaced;
            if (answer && !answer->known) say_that_it_is_here();
            if (answer && answer->known && answer->members != mine) compare_with(who.key);
            if (answer) return sign::alive;
            if (!nobody_listens(answer.code().code)) return sign::silent;
        }
        if (on_.now() >= until) return sign::silent;
    }
    return sign::refused;
}

std::vector<std::uint64_t> directory_ring::some_others(std::uint64_t without) {
    const std::lock_guard one(lock_);
    std::vector<std::uint64_t> all = others_.keys();
    // Suspected servers cannot help.
    std::erase_if(all,
                  [&](std::uint64_t each) { return each == without || suspected_.holds(each); });
    for (std::size_t i = 0; i < std::min(helpers, all.size()); ++i)
        std::swap(all[i], all[i + chance_.below(all.size() - i)]);
    all.resize(std::min(helpers, all.size()));
    return all;
}

sign directory_ring::ask_others_about(const member& who, std::uint32_t suspected,
                                      std::chrono::nanoseconds within,
                                      std::vector<std::uint64_t>& confirmed) {
    const clock::time_point until = on_.now() + within;
    std::vector<std::pair<std::uint64_t, future<sign>>> asked;
    for (const std::uint64_t each : some_others(who.key))
        if (const auto there = reach(each, within))
            asked.emplace_back(each, ping_req_.on(*there)
                                         .within(std::max(until - on_.now(), clock::duration(1)))
                                         .start(who.key, suspected));
    sign seen = sign::unknown;
    bool some_silent = false;
    for (auto& [by, call] : asked) {
        if (!call.wait().ok()) {  // It should have answered, even if it saw nothing.
            const std::lock_guard one(lock_);
            health_.worse();
            reached_.erase(by);
            continue;
        }
        const sign one = call.get();
        if (one == sign::alive) seen = sign::alive;
        if (one == sign::alive || one == sign::unknown) continue;
        confirmed.push_back(by);
        some_silent = some_silent || one == sign::silent;
        if (seen == sign::unknown) seen = one;
    }
    if (seen == sign::alive) return seen;
    return some_silent ? sign::silent : seen;
}

bool directory_ring::look_after(const member& next) {
    std::chrono::nanoseconds within{};
    std::uint32_t suspected = 0;
    {
        const std::lock_guard one(lock_);
        within = health_.scaled(options_.period) / 3;
        if (suspected_.holds(next.key)) suspected = next.version;
    }
    const sign direct = look_at(next, suspected, within);
    std::vector<std::uint64_t> by;
    sign seen = direct;
    if (direct == sign::silent || direct == sign::refused)
        seen = ask_others_about(next, suspected, within, by);
    if (stopping_.is_set()) return false;
    if (seen == sign::alive) {
        const std::lock_guard one(lock_);
        if (direct == sign::alive) health_.better();
        suspected_.clear(next.key);
        return false;
    }
    // No need to wait if its host refuses every connection, or another server has its address.
    const bool refused = direct == sign::refused && (seen == sign::refused || size() == 2);
    if (refused || seen == sign::replaced) {
        remove({next.key, next.version});
        return false;
    }
    return suspect(next, by);
}

bool directory_ring::is_gone(const member& who) {
    const sign direct = look_at(who, 0, options_.period);
    if (direct == sign::alive) return false;
    if (direct == sign::replaced) return true;
    std::vector<std::uint64_t> by;
    return ask_others_about(who, 0, options_.period, by) != sign::alive;
}

bool directory_ring::suspect(const member& who, const std::vector<std::uint64_t>& by) {
    bool fresh = false, over = false, others_say_so = false;
    {
        const std::lock_guard one(lock_);
        const member* const known = others_.find(who.key);
        if (known == nullptr || known->version != who.version) return false;  // It has refuted it.
        fresh = suspected_.suspect(who.key, who.version, on_.now());
        const std::size_t others = others_.size() - std::min(others_.size(), suspected_.size());
        for (const std::uint64_t each : by)
            suspected_.confirm(who.key, each);
        over = suspected_.is_over(who.key, others, on_.now());
        others_say_so = others == 0 || suspected_.confirmations(who.key) != 0;
    }
    if (fresh) {
        log(log_level::info, "directory", "another directory is suspected to be gone",
            {{"key", who.key}, {"confirmed_by", by.size()}});
        run([who](directory_ring& me) { me.tell_that_it_is_suspected(who); });
    }
    if (!over) return true;
    if (others_say_so) {
        remove({who.key, who.version});
    } else {  // Nobody answers, so this server is cut off: it must not spread that.
        learn({{}, {{who.key, who.version}}});
    }
    return false;
}

// Tells it first, directly and through others: it may be able to refute it.
void directory_ring::tell_that_it_is_suspected(const member& who) {
    std::vector<std::uint64_t> ignored;
    const std::chrono::nanoseconds within = options_.period / 3;
    if (look_at(who, who.version, within) != sign::alive &&
        ask_others_about(who, who.version, within, ignored) != sign::alive)
        return;
    const std::lock_guard one(lock_);
    suspected_.clear(who.key);
}

bool directory_ring::is_at(const peer& there, std::uint64_t key) {
    const auto answer = ping_.on(there).within(options_.answer_limit).try_call(self_key(), 0);
    return answer && answer->key == key;
}

void directory_ring::compare_with(std::uint64_t key) {
    const auto there = reach(key);
    if (!there) return;
    const auto theirs = compare_.on(*there).within(options_.answer_limit).try_call(all());
    if (theirs) learn_of_departures(*theirs);
}

ring_news directory_ring::compared(ring_news known) {
    learn_of_departures(known);
    return all();
}

// A server that was cut off believes all others gone. Its reports about members known here are
// checked before those are removed.
void directory_ring::learn_of_departures(const ring_news& known) {
    ring_news news{known.came, {}};
    bool look = false;
    {
        const std::lock_guard one(lock_);
        for (const departure& each : known.gone) {
            if (each.key == self_.key) {
                news.gone.push_back(each);
                continue;
            }
            const member* const there = others_.find(each.key);
            if (there == nullptr || there->version > each.version) continue;
            said_gone_[each.key] = each.version;
        }
        look = !said_gone_.empty() && !std::exchange(looking_at_departed_, true);
    }
    learn(news);
    if (look) run([](directory_ring& me) { me.look_at_departed(); });
}

void directory_ring::look_at_departed() {
    while (!stopping_.is_set()) {
        departure next;
        member who;
        {
            const std::lock_guard one(lock_);
            if (said_gone_.empty()) {
                looking_at_departed_ = false;
                return;
            }
            const auto first = said_gone_.begin();
            next = {first->first, first->second};
            said_gone_.erase(first);
            const member* const there = others_.find(next.key);
            if (there == nullptr || there->version > next.version) continue;
            who = *there;
        }
        if (is_gone(who)) learn({{}, {next}});
    }
}

void directory_ring::say_that_it_is_here() {
    log(log_level::info, "directory", "the other directories considered this one gone");
    ring_news news;
    {
        const std::lock_guard one(lock_);
        ++self_.version;
        news.came.push_back(self_);
    }
    tell_all(news);
}

}  // namespace amalgam::detail
