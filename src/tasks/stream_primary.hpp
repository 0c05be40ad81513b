#pragma once

#include <optional>

#include <sched.h>

#include "tasks/stack_memory.hpp"
#include "tasks/stream.hpp"
#include "tasks/stream_turn.hpp"
#include "tasks/ult_core.hpp"

namespace amalgam::detail {

/// What makes the calling thread a ULT: its own stack becomes that of `main`, and the stream's
/// loop gets a new one, which is dropped in the end where it stands.
///
/// `main` lives in the stream's own pool, which no other stream serves: thread and stack stay
/// together, whatever the stream's scheduler shares out.
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
