#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <sys/types.h>

namespace amalgam::detail {

class stream;
class ult_core;

/// A ULT that ran when somebody looked. Stream and ULT are only compared with: they may be gone.
struct running_ult {
    const stream* on = nullptr;
    pid_t thread = 0;  ///< The stream's.
    const ult_core* who = nullptr;
};

/// The return addresses of a ULT that runs, see stack_trace.hpp. Returns how many.
///
/// It is asked for by a signal, running_trace_signal(), to the stream's thread, whose handler reads
/// its own stack: none when the program has another use for that signal, when the thread does not
/// answer for 0.2 s, when the ULT is not what it runs any more, and where we do not know how. The
/// calling ULT itself is read without a signal.
///
/// Threads: any; one at a time asks, others wait.
std::size_t trace_running(const running_ult& what, std::span<std::uintptr_t> into) noexcept;

/// SIGRTMAX - 2: glibc has the first ones for itself, and programs count up from SIGRTMIN.
int running_trace_signal() noexcept;

}  // namespace amalgam::detail
