#include "directory/membership/failure_detector.hpp"

#include <chrono>
#include <cstddef>
#include <exception>
#include <utility>

#include <amalgam/core/log.hpp>

#include "directory/limits.hpp"

namespace amalgam::detail {

failure_detector::failure_detector(ring_runtime& runtime, membership_view& view,
                                   dissemination& news, probes& pings, joining& joins)
    : runtime_(runtime), view_(view), news_(news), probes_(pings), joining_(joins) {}

void failure_detector::start() {
    {
        const std::lock_guard one(lock_);
        if (std::exchange(runs_, true)) return;
    }
    runtime_.run([this] { watch_successors(); });
}

void failure_detector::watch_successors() {
    const std::chrono::milliseconds period = runtime_.options.period;
    unsigned round = 0;
    std::chrono::nanoseconds pause = period;
    while (!runtime_.stopping.wait_for(pause)) {
        std::vector<member> next = view_.successors(limits::successors_probed);
        const bool alone = next.empty();
        {
            const std::lock_guard one(lock_);
            std::erase_if(next,
                          [&](const member& each) { return !probed_.insert(each.key).second; });
        }
        pause = probes_.scaled(period);
        for (member& each : next) {
            runtime_.run([this, period, each = std::move(each)] {
                try {
                    while (probe(each) && !runtime_.stopping.wait_for(period / 4)) {
                    }
                } catch (const std::exception& why) {  // Most likely out of memory.
                    rethrow_if_canceled(why);
                    log(log_level::warn, "directory", "cannot check another directory",
                        {{"key", each.key}, {"why", why.what()}});
                }
                const std::lock_guard one(lock_);
                probed_.erase(each.key);
            });
        }
        if (const auto here = runtime_.here.lock()) here->see_servers(view_.keys());
        if (alone || ++round % limits::rounds_between_rejoins == 0) joining_.rejoin_lost();
    }
}

bool failure_detector::probe(const member& next) {
    const std::chrono::nanoseconds within = probes_.scaled(runtime_.options.period) / 3;
    const std::uint32_t suspected = view_.suspects(next.key) ? next.version : 0;
    const sign direct = probes_.ping(next, suspected, within);
    std::vector<std::uint64_t> by;
    sign seen = direct;
    if (direct == sign::silent || direct == sign::refused)
        seen = probes_.ping_through_others(next, suspected, within, by);
    if (runtime_.stopping.is_set()) return false;
    if (seen == sign::alive) {
        if (direct == sign::alive) probes_.succeeded();
        view_.trust(next.key);
        return false;
    }
    // No need to wait if its host refuses every connection, or another server has its address.
    const bool refused = direct == sign::refused && (seen == sign::refused || view_.size() == 2);
    if (refused || seen == sign::replaced) {
        news_.remove({next.key, next.version});
        return false;
    }
    return suspect(next, by);
}

bool failure_detector::suspect(const member& who, const std::vector<std::uint64_t>& by) {
    const auto now = view_.suspect(who, by, runtime_.now());
    if (!now) return false;
    if (now->fresh) {
        log(log_level::info, "directory", "another directory is suspected to be gone",
            {{"key", who.key}, {"confirmed_by", by.size()}});
        runtime_.run([this, who] { warn(who); });
    }
    if (!now->over) return true;
    if (now->confirmed) {
        news_.remove({who.key, who.version});
    } else {  // Nobody answers, so this server is cut off: it must not spread that.
        news_.learn({{}, {{who.key, who.version}}});
    }
    return false;
}

// Tells it that it is suspected, directly and through others: it may be able to refute that.
void failure_detector::warn(const member& who) {
    std::vector<std::uint64_t> ignored;
    const std::chrono::nanoseconds within = runtime_.options.period / 3;
    if (probes_.ping(who, who.version, within) == sign::alive ||
        probes_.ping_through_others(who, who.version, within, ignored) == sign::alive)
        view_.trust(who.key);
}

}  // namespace amalgam::detail
