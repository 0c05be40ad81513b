#include "tasks/debug/stream_list.hpp"

#include <algorithm>
#include <span>

#include <amalgam/core/clock.hpp>
#include <amalgam/tasks/extension/ult_snapshot.hpp>
#include <amalgam/tasks/inspect.hpp>

#include "tasks/dispatch/registry.hpp"
#include "tasks/dispatch/ult_core.hpp"
#include "tasks/streams/stream.hpp"

namespace amalgam::detail {

std::vector<stream_seen> list_streams() {
    std::vector<stream_seen> all;
    // No stack is unmapped meanwhile, so the running ULT's stack exists.
    ult_registry::with_streams_and_stacks([&](std::span<dispatcher* const> streams) {
        for (dispatcher* each : streams) {
            stream& its = each->of();
            const ult_core* const running = each->running_seen();
            all.push_back({each, its.options().name, each->thread_seen(), running,
                           running == nullptr ? std::string() : running->name_seen(),
                           each->batch_seen(), each->work().budget(), its.options().driven,
                           its.loop().asleep_seen(),
                           its.loop().timers().earliest() != stream_loop::time_point::max(),
                           its.loop().has_pollers()});
        }
    });
    return all;
}

}  // namespace amalgam::detail

namespace amalgam {

stream_activity activity_of(const execution_stream& which) {
    stream_activity seen;
    detail::ult_registry::with_streams([&](std::span<detail::dispatcher* const> streams) {
        for (detail::dispatcher* each : streams) {
            if (&each->of().owner() != &which) continue;
            const detail::sleep_times& slept = each->of().loop().slept();
            const auto ago = [](std::uint64_t took) { return detail::time_since(cycles() - took); };
            seen.asleep = slept.total();
            seen.sleeps = slept.times();
            seen.steals = each->steals_seen();
            if (each->running_seen() != nullptr) seen.held = detail::time_since(each->batch_seen());
            seen.longest_hold = std::max(ago(each->longest_hold_seen()), seen.held);
        }
    });
    return seen;
}

}  // namespace amalgam
