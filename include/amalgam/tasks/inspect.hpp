#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <amalgam/tasks/pool.hpp>

namespace amalgam {

enum class ult_state : std::uint8_t {
    ready,    ///< In a pool, or on its way there.
    running,  ///< On a stream, right now.
    parked    ///< Waits for somebody to wake it.
};

/// "parked"; what print_ults() writes.
const char* name(ult_state state) noexcept;

/// One call of a ULT's stack.
struct ult_frame {
    /// Where it goes on, behind the call; the innermost of one that runs: behind some byte of where
    /// it was.
    std::uintptr_t address = 0;
    /// "function (file+0x12)", as far as the program exports its names (-rdynamic, CMake's
    /// ENABLE_EXPORTS); addr2line takes the rest.
    std::string text;
};

/// What a ULT did when somebody looked.
struct ult_info {
    const void* id = nullptr;  ///< The same as long as it lives; what the gdb commands take.
    std::string name;          ///< As given in ult_options; may be empty.
    ult_state state = ult_state::ready;
    /// While parked, what for: "mutex", "event", "channel", "join", "future", "sleep", "rpc reply",
    /// "item of a flow queue" …, or "permit" for a waiter of the user's without a name.
    std::string waits_for;
    /// While parked, how long. Streams note the time after each batch of work, not at each park:
    /// what ran in the same batch before the park is counted too.
    std::chrono::nanoseconds waited{};
    /// Running: the stream's name. Else that of the stream whose main pool is its home; empty when
    /// none's is, as for pools that streams share.
    std::string stream;
    const pool* home = nullptr;    ///< To compare only: it may be gone by now.
    std::vector<ult_frame> trace;  ///< From the innermost call; see list_ults().
};

/// Every ULT that was made and has not ended, in no order: a look at a program that hangs. Each is
/// looked at on its own, so the list as a whole is no state the program was ever in. Coroutines,
/// tasklets and plain threads are not ULTs, and not in it.
///
/// `with_traces`: with their call stacks. Those of ULTs that do not run are read where they lie:
/// nothing is switched to. To those that run, signal SIGRTMAX - 2 is sent, on their stream's
/// thread; its handler, installed once, reads the stack. A system call that the ULT is in may then
/// end with EINTR. Their traces stay empty where the program itself handles or ignores that signal,
/// and when the thread does not answer within 0.2 s, because it blocks the signal, or the ULT has
/// stopped running. On x86-64 only; elsewhere, and for the ULT that a primary stream makes of its
/// thread, all traces are empty.
///
/// Threads: any, ULTs too.
/// Failure: throws std::bad_alloc.
/// Cost:    they are looked at some hundreds at a time, which cannot run meanwhile, with one system
///          call each time; no stack is mapped or unmapped before all are seen.
std::vector<ult_info> list_ults(bool with_traces = false);

/// Writes list_ults(true) to a file descriptor: a line for each ULT, its trace indented below.
/// What cannot be written is left out.
void print_ults(int fd);

/// From now on the signal makes the process print_ults() to standard error, and go on. The handler
/// only tells a thread of our own, which this starts once. It replaces the signal's handler. A
/// child of fork() takes no notice of the signal until it asks for that itself.
///
///     print_ults_on_signal(SIGUSR1);  // then: kill -USR1 …
///
/// Failure: throws error{invalid} for what is no signal that can be handled, error{no_memory}
///          without a descriptor or a thread.
void print_ults_on_signal(int signal_number);

}  // namespace amalgam
