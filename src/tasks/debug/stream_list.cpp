#include "tasks/debug/stream_list.hpp"

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
