#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <sys/types.h>

namespace amalgam::detail {

class dispatcher;
class ult_core;

/// A ULT that was running when inspected. Stream and ULT are used for comparison only: they may be
/// gone.
struct running_ult {
    const dispatcher* on = nullptr;
    pid_t thread = 0;  ///< The stream's.
    const ult_core* who = nullptr;
};

/// The return addresses of a running ULT, see stack_trace.hpp. Returns how many.
///
/// Sends running_trace_signal() to the stream's thread, whose handler reads its own stack. Returns
/// none if the program uses that signal otherwise, if the thread does not answer for 0.2 s, if it
/// no longer runs that ULT, and where stacks cannot be read. The calling ULT itself is read without
/// a signal.
///
/// Threads: any; one request at a time, others wait.
std::size_t trace_running(const running_ult& what, std::span<std::uintptr_t> into) noexcept;

/// SIGRTMAX - 2: glibc reserves the first ones, and programs count up from SIGRTMIN.
int running_trace_signal() noexcept;

}  // namespace amalgam::detail
