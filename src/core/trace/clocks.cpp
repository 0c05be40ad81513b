#include "clocks.hpp"

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

void align_clocks(std::vector<host_clock>& clocks, const clock_differences& all) {
    clocks.front().known = true;
    for (bool found = true; found;) {
        found = false;
        for (const auto& [between, what] : all) {
            host_clock& caller = clocks[between.first];
            host_clock& server = clocks[between.second];
            if (caller.known == server.known) continue;
            found = true;
            const host_clock from = caller.known ? caller : server;
            host_clock& to = caller.known ? server : caller;
            to.offset = from.offset + (caller.known ? what.offset : -what.offset);
            to.error = from.error + what.error;
            to.known = true;
        }
    }
    for (host_clock& each : clocks) {
        if (each.known) continue;
        each.offset = each.to_wall - clocks.front().to_wall;
        each.error = -1;
    }
}

}  // namespace amalgam::detail
