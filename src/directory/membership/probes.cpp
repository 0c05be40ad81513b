#include "directory/membership/probes.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "directory/limits.hpp"

namespace amalgam::detail {

namespace {

bool nobody_listens(errc why) {
    return why == errc::unreachable || why == errc::disconnected || why == errc::closed;
}
}  // namespace

probes::probes(ring_runtime& runtime, membership_view& view, ring_peers& peers, dissemination& news,
               std::function<void(std::uint64_t)> differs)
    : runtime_(runtime),
      view_(view),
      peers_(peers),
      news_(news),
      differs_(std::move(differs)),
      ping_req_(runtime.on.procedure<in_ring::ping_req>(in_ring::ping_req_name)) {}

void probes::start() {
    runtime_.serve(*this, in_ring::ping_name, &probes::pinged);
    runtime_.serve(*this, in_ring::ping_req_name, &probes::asked_to_ping, handler::ult);
}

alive_answer probes::pinged(std::uint64_t by, std::uint32_t suspected) {
    alive_answer answer{false, view_.key(), 0};
    const bool refutes = view_.locked([&](const member& self, const member_table& others) {
        answer.known = others.find(by) != nullptr;
        answer.members = others.digest() + member_table::digest_of(self);
        return suspected == self.version;
    });
    if (refutes) {
        failed();
        runtime_.run_for_others([this] { news_.refute(); });
    }
    return answer;
}

sign probes::asked_to_ping(std::uint64_t who, std::uint32_t suspected) {
    const auto known = view_.find(who);
    if (!known) return sign::unknown;
    return ping(
        *known, suspected,
        std::min<std::chrono::nanoseconds>(runtime_.time_left(), runtime_.options.period / 4));
}

sign probes::ping(const member& who, std::uint32_t suspected, std::chrono::nanoseconds within) {
    constexpr int attempts = 2;  // A connection may have broken long ago.
    const clock::time_point until = runtime_.now() + within;
    for (int i = 0; i < attempts && !runtime_.stopping.is_set(); ++i) {
        const auto there = peers_.reach(who.key, until - runtime_.now());
        if (there) {
            const auto answer =
                peers_.ping(*there, until - runtime_.now()).try_call(view_.key(), suspected);
            if (!answer || answer->key != who.key) peers_.drop(who.key);
            const std::uint64_t mine = view_.digest();
            if (answer && answer->key != who.key) return sign::replaced;
            if (answer && !answer->known) news_.refute();
            if (answer && answer->known && answer->members != mine) differs_(who.key);
            if (answer) return sign::alive;
            if (!nobody_listens(answer.code().code)) return sign::silent;
        }
        if (runtime_.now() >= until) return sign::silent;
    }
    return sign::refused;
}

std::vector<std::uint64_t> probes::some_helpers(std::uint64_t without) {
    std::vector<std::uint64_t> all = view_.trusted(without);  // Suspected servers cannot help.
    const std::size_t count = std::min(limits::suspicion_confirmations, all.size());
    for (std::size_t i = 0; i < count; ++i)
        std::swap(all[i], all[i + runtime_.random_below(all.size() - i)]);
    all.resize(count);
    return all;
}

sign probes::ping_through_others(const member& who, std::uint32_t suspected,
                                 std::chrono::nanoseconds within,
                                 std::vector<std::uint64_t>& confirmed) {
    const clock::time_point until = runtime_.now() + within;
    std::vector<std::pair<std::uint64_t, future<sign>>> asked;
    for (const std::uint64_t each : some_helpers(who.key))
        if (const auto there = peers_.reach(each, within))
            asked.emplace_back(each,
                               ping_req_.on(*there)
                                   .within(std::max(until - runtime_.now(), clock::duration(1)))
                                   .start(who.key, suspected));
    sign seen = sign::unknown;
    bool some_silent = false;
    for (auto& [by, call] : asked) {
        if (!call.wait().ok()) {  // It should have answered, even if it saw nothing.
            failed();
            peers_.drop(by);
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

bool probes::is_gone(const member& who) {
    const sign direct = ping(who, 0, runtime_.options.period);
    if (direct == sign::alive) return false;
    if (direct == sign::replaced) return true;
    std::vector<std::uint64_t> by;
    return ping_through_others(who, 0, runtime_.options.period, by) != sign::alive;
}

void probes::succeeded() {
    const std::lock_guard one(lock_);
    health_.better();
}

void probes::failed() {
    const std::lock_guard one(lock_);
    health_.worse();
}

std::chrono::nanoseconds probes::scaled(std::chrono::nanoseconds time) const {
    const std::lock_guard one(lock_);
    return health_.scaled(time);
}

}  // namespace amalgam::detail
