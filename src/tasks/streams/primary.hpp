#pragma once

#include <optional>

#include <sched.h>

#include "tasks/streams/stream.hpp"
#include "tasks/streams/turn.hpp"
#include "tasks/ult/core.hpp"
#include "tasks/ult/stack_memory.hpp"

namespace amalgam::detail {

/// Turns the calling thread into a ULT: its own stack becomes that of `main`, and the stream's loop
/// gets a new stack, which is discarded at the end wherever it stands.
///
/// `main` lives in the stream's own pool, which no other stream serves, so thread and stack stay
/// together whatever pools the scheduler shares.
class stream::primary {
public:
    explicit primary(stream& of);
    ~primary();
    primary(const primary&) = delete;
    primary& operator=(const primary&) = delete;

    ult_core main;

private:
    stream& of_;
    cpu_set_t cores_before_{};
    stack_memory loop_stack_;
    std::optional<turn> turn_;
};

}  // namespace amalgam::detail
