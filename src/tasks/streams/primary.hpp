#pragma once

#include <optional>
#include <string>

#include <pthread.h>

#include <amalgam/tasks/cpu_set.hpp>

#include "tasks/dispatch/dispatcher.hpp"
#include "tasks/dispatch/ult_core.hpp"
#include "tasks/stacks/memory.hpp"
#include "tasks/streams/stream_loop.hpp"

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
    /// `cpus`: to bind the thread to meanwhile; empty: any.
    primary(dispatcher& runs, stream_loop& loop, const std::string& name, const cpu_set& cpus);
    ~primary();
    primary(const primary&) = delete;
    primary& operator=(const primary&) = delete;

    pthread_t thread() const noexcept { return thread_; }
    bool runs() const noexcept { return runs_.running() == &main_; }

private:
    ult_core main_;
    dispatcher& runs_;
    const pthread_t thread_ = ::pthread_self();
    const cpu_set cpus_before_;
    stack_memory loop_stack_;
    std::optional<stream_loop::turn> turn_;
};

}  // namespace amalgam::detail
