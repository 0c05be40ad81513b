#pragma once

#include <optional>
#include <string>

#include <sched.h>

#include "tasks/stacks/memory.hpp"
#include "tasks/streams/stream_loop.hpp"
#include "tasks/ult/core.hpp"
#include "tasks/ult/dispatcher.hpp"

namespace amalgam::detail {

/// Turns the calling thread into a ULT of a stream: its own stack becomes that of the ULT, and the
/// stream's loop gets a new stack, which is discarded at the end wherever it stands.
///
/// That ULT lives in the stream's own pool, which no other stream serves, so thread and stack stay
/// together whatever pools the scheduler shares.
///
/// Threads: made and destroyed by that thread.
class primary {
public:
    /// `core`: to bind the thread to meanwhile; negative: none.
    primary(dispatcher& runs, stream_loop& loop, const std::string& name, int core);
    ~primary();
    primary(const primary&) = delete;
    primary& operator=(const primary&) = delete;

    bool runs() const noexcept { return runs_.running() == &main_; }

private:
    ult_core main_;
    dispatcher& runs_;
    cpu_set_t cores_before_{};
    stack_memory loop_stack_;
    std::optional<stream_loop::turn> turn_;
};

/// Binds the calling thread; negative: leaves it as it is.
void bind_to_core(int which) noexcept;

}  // namespace amalgam::detail
