#include "fabric/broadcast/replay_windows.hpp"

#include <algorithm>
#include <iterator>

namespace amalgam::detail {

void replay_windows::forget_silent(runs_of_key& of, time_point now) {
    std::erase_if(of, [&](const auto& each) { return now - each.second.heard > forget_after_; });
}

void replay_windows::forget_silent(time_point now) {
    for (auto each = all_.begin(); each != all_.end();) {
        forget_silent(each->second, now);
        each = each->second.empty() ? all_.erase(each) : std::next(each);
    }
}

replay_windows::outcome replay_windows::note(const key_fingerprint& key, std::uint64_t run,
                                             std::uint64_t number, time_point now) {
    constexpr std::uint64_t width = 64;
    if (!all_.contains(key)) {
        if (all_.size() >= most_keys_) forget_silent(now);
        // Those that are remembered are not given up for it: their old packets could come again.
        if (all_.size() >= most_keys_) return outcome::crowded;
    }
    runs_of_key& runs = all_[key];
    auto at = runs.find(run);
    if (at == runs.end()) {
        if (runs.size() >= most_runs_) forget_silent(runs, now);
        if (runs.size() >= most_runs_) return outcome::crowded;
        runs[run] = {number, 1, now};
        return outcome::fresh;
    }
    window& known = at->second;
    // A clock that was set back must not make it forget too early.
    known.heard = std::max(known.heard, now);
    if (number > known.highest) {
        const std::uint64_t steps = number - known.highest;
        known.seen = steps >= width ? 0 : known.seen << steps;
        known.seen |= 1;
        known.highest = number;
        return outcome::fresh;
    }
    const std::uint64_t behind = known.highest - number;
    if (behind >= width || ((known.seen >> behind) & 1) != 0) return outcome::repeated;
    known.seen |= std::uint64_t{1} << behind;
    return outcome::fresh;
}

std::size_t replay_windows::runs() const noexcept {
    std::size_t sum = 0;
    for (const auto& [key, runs] : all_)
        sum += runs.size();
    return sum;
}

}  // namespace amalgam::detail
