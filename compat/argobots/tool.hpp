#pragma once

#include <atomic>
#include <cstdint>

#include "units/thread.hpp"

namespace amalgam::argobots {

/// The events that a tool asked for; 0: none.
extern std::atomic<std::uint64_t> tool_events;

void tell_tool_slowly(ABT_thread_opaque& who, std::uint64_t event) noexcept;

/// Tells the tool, if it asked for this event. Cost: one load.
inline void tell_tool(ABT_thread_opaque& who, std::uint64_t event) noexcept {
    if ((tool_events.load(std::memory_order_relaxed) & event) != 0) [[unlikely]]
        tell_tool_slowly(who, event);
}

}  // namespace amalgam::argobots
