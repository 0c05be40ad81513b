#pragma once

#include <amalgam/tasks/extension/plain_thread.hpp>

#include "tool.hpp"

namespace amalgam::argobots {

/// While it exists, the caller counts as blocked. For each wait. One of a tasklet, or of what else
/// is on a stream's own stack, blocks that stream, of which a tool is not told.
class blocked {
public:
    explicit blocked(awaited what = {}) noexcept
        : who_(self()), what_(what), on_(argobots::is_tasklet(who_) || is_on_streams_stack(who_)) {
        set(ABT_THREAD_STATE_BLOCKED);
        again();
    }
    ~blocked() {
        set(ABT_THREAD_STATE_RUNNING);
        if (told()) tell_tool_goes_on(*who_);
    }
    blocked(const blocked&) = delete;
    blocked& operator=(const blocked&) = delete;

    /// Before each further wait, so that a tool is told of it, too.
    void again() noexcept {
        if (told()) tell_tool(*who_, ABT_TOOL_EVENT_THREAD_SUSPEND, what_);
    }

private:
    bool told() const noexcept { return who_ != nullptr && !who_->is_tasklet(); }
    void set(int state) noexcept {
        if (who_ == nullptr) return;
        who_->state.store(static_cast<std::uint8_t>(state), std::memory_order_release);
        // Who waits takes long enough; one that joins it meanwhile should not have to wait for it.
        who_->ends_quickly.store(false, std::memory_order_relaxed);
    }
    ABT_thread_opaque* who_;
    const awaited what_;
    const detail::as_plain_thread on_;
};

}  // namespace amalgam::argobots
