#include "flow/streams.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <sched.h>

namespace amalgam::detail {
namespace {

/// Cores this process may use: fewer than the machine has when it is pinned.
std::size_t usable_cores() noexcept {
    cpu_set_t set;
    if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    return static_cast<std::size_t>(CPU_COUNT(&set));
}

}  // namespace

std::size_t streams_for(std::size_t threads, std::size_t nodes) noexcept {
    return threads != 0 ? threads : std::max<std::size_t>(std::min(nodes, usable_cores()), 1);
}

node_streams::node_streams(unsigned threads, std::size_t nodes) {
    for (std::size_t i = 0; i < streams_for(threads, nodes); ++i) {
        execution_stream_options options;
        options.name = fmt::format("flow{}", i);
        owned_.push_back(std::make_unique<execution_stream>(options));
        all_.push_back(owned_.back().get());
    }
}

}  // namespace amalgam::detail
