#pragma once

#include <atomic>
#include <cstdint>

#include "units/thread.hpp"

namespace amalgam::argobots {

/// The events that a tool asked for; 0: none.
extern std::atomic<std::uint64_t> tool_events;

/// What a unit waits for, or why it yields.
struct awaited {
    ABT_sync_event_type kind = ABT_SYNC_EVENT_TYPE_OTHER;
    const void* object = nullptr;
};

inline bool has_tool() noexcept {
    return tool_events.load(std::memory_order_relaxed) != 0;
}

void tell_tool_slowly(ABT_thread_opaque& who, std::uint64_t event, awaited what) noexcept;
void tell_tool_begun_slowly(ABT_thread_opaque& who) noexcept;
void tell_tool_goes_on_slowly(ABT_thread_opaque& who) noexcept;

/// Tells the tool, if it asked for this event, and it follows from what it was told of this unit.
/// Cost: one load.
inline void tell_tool(ABT_thread_opaque& who, std::uint64_t event, awaited what = {}) noexcept {
    if (has_tool()) [[unlikely]]
        tell_tool_slowly(who, event, what);
}

/// Its stream chose it: it runs, or is canceled.
inline void tell_tool_begun(ABT_thread_opaque& who) noexcept {
    if (has_tool()) [[unlikely]]
        tell_tool_begun_slowly(who);
}

/// Its wait or yield is over. Tells what was left out, if it was over without leaving the stream.
inline void tell_tool_goes_on(ABT_thread_opaque& who) noexcept {
    if (has_tool()) [[unlikely]]
        tell_tool_goes_on_slowly(who);
}

/// It enters its pool. Tells so, if it was waiting.
inline void tell_tool_ready(ABT_thread_opaque& who) noexcept {
    if (has_tool() && (who.told == told_stage::suspended || who.told == told_stage::waits))
        [[unlikely]]
        tell_tool_slowly(who, ABT_TOOL_EVENT_THREAD_RESUME, {});
}

}  // namespace amalgam::argobots
