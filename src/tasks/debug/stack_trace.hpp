#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "tasks/stacks/switch.hpp"

namespace amalgam::detail {

/// The return addresses, innermost first, of a stack that is suspended and stays so. The stack ends
/// below `top`. For an interrupted frame, the address is one byte past the point of interruption.
/// Returns how many; none where suspended stacks cannot be read.
std::size_t trace_suspended(const void* where, const void* top,
                            std::span<std::uintptr_t> into) noexcept;

/// The same for the calling thread's stack, starting at the frame with that stack pointer. Also
/// works in a signal handler, whatever stack that runs on.
std::size_t trace_caller(const void* stack_pointer, const void* top,
                         std::span<std::uintptr_t> into) noexcept;

/// "function (file+0x12)", or as much as is known.
std::string describe_address(std::uintptr_t address);

}  // namespace amalgam::detail
