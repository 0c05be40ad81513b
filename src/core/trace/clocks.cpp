#include "clocks.hpp"

#include <algorithm>
#include <functional>
#include <queue>

namespace amalgam::detail {

void compare(clock_differences& all, const seen_call& call) {
    if (call.sent == 0 || call.arrived == 0 || call.caller == call.server) return;
    const auto there = static_cast<std::int64_t>(call.arrived - call.sent);
    const auto back = static_cast<std::int64_t>(call.returned - call.answered);
    const auto round =
        static_cast<std::int64_t>((call.answered - call.sent) - (call.returned - call.arrived));
    if (call.answered <= call.sent || round < 0) return;
    clock_difference& best = all[{call.caller, call.server}];
    if (best.error >= 0 && best.error <= round / 2) return;
    // How far the server's clock is ahead.
    const std::int64_t ahead = there / 2 + back / 2;
    best = {-ahead, round / 2};
}

namespace {

std::int64_t add_within(std::int64_t a, std::int64_t b) noexcept {
    return std::clamp(a + b, -most_offset,
                      most_offset);  // Both are within, so it does not overflow.
}

}  // namespace

void align_clocks(std::vector<host_clock>& clocks, const clock_differences& all) {
    struct way {
        std::size_t to;
        clock_difference what;
    };
    std::vector<std::vector<way>> from(clocks.size());
    for (const auto& [between, what] : all) {
        if (what.error < 0) continue;
        from[between.first].push_back({between.second, what});
        from[between.second].push_back({between.first, {-what.offset, what.error}});
    }
    struct reached {
        std::int64_t error;
        std::int64_t offset;
        std::size_t clock;
        bool operator>(const reached& other) const noexcept { return error > other.error; }
    };
    std::priority_queue<reached, std::vector<reached>, std::greater<>> next;
    next.push({0, 0, 0});
    while (!next.empty()) {
        const reached now = next.top();
        next.pop();
        host_clock& here = clocks[now.clock];
        if (here.known) continue;
        here.known = true;
        here.offset = now.offset;
        here.error = now.error;
        for (const way& each : from[now.clock]) {
            if (clocks[each.to].known) continue;
            next.push({add_within(now.error, each.what.error),
                       add_within(now.offset, each.what.offset), each.to});
        }
    }
    for (host_clock& each : clocks) {
        if (each.known) continue;
        each.offset = std::clamp(each.to_wall - clocks.front().to_wall, -most_offset, most_offset);
        each.error = -1;
    }
}

}  // namespace amalgam::detail
