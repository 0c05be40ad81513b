#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "tasks/stack_switch.hpp"

namespace amalgam::detail {

/// The return addresses (an interrupted frame's one is behind the first byte of where it was) of a
/// stack that is suspended, and stays so; from the innermost. The stack
/// ends below `top`. Returns how many; none where we do not know how to read a suspended stack.
std::size_t trace_suspended(const void* where, const void* top,
                            std::span<std::uintptr_t> into) noexcept;

/// The same of the calling thread's stack, from the frame whose stack pointer that is; also out of
/// a signal handler, whatever stack that runs on.
std::size_t trace_caller(const void* stack_pointer, const void* top,
                         std::span<std::uintptr_t> into) noexcept;

/// "function (file+0x12)", or what is known of that.
std::string describe_address(std::uintptr_t address);

}  // namespace amalgam::detail
