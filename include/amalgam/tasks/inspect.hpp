#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/tasks/pool.hpp>
#include <amalgam/tasks/ult_state.hpp>

namespace amalgam {

class execution_stream;

/// One call on a ULT's stack.
struct ult_frame {
    /// Return address. For the innermost frame of a running ULT: the interrupted address plus one.
    std::uintptr_t address = 0;
    /// "function (file+0x12)", if the program exports its names (-rdynamic, CMake's
    /// ENABLE_EXPORTS); otherwise pass the file and offset to addr2line.
    std::string text;
};

/// Snapshot of one ULT.
struct ult_info {
    const void* id = nullptr;  ///< Constant while the ULT lives; the gdb commands accept it.
    std::string name;          ///< From ult_options; may be empty.
    ult_state state = ult_state::ready;  ///< What it is doing.
    /// If parked, what for: "mutex", "event", "channel", "join", "future", "sleep", "rpc reply",
    /// "item of a flow queue" …; "permit" for a user's waiter without a name.
    std::string waits_for;
    /// If parked, how long. Streams note the time once per batch of work, not at each park, so this
    /// may include time that the same batch ran before parking. If running: since its stream last
    /// ended a batch.
    std::chrono::nanoseconds waited{};
    /// If parked for a mutex or a join: the id of the ULT that holds the mutex or is joined. Null
    /// if it is a plain thread, a coroutine or a tasklet. Of a shared_mutex the one that writes.
    const void* waits_for_ult = nullptr;
    /// If parked for a mutex or shared_mutex: that one; for a condition_variable: the mutex that it
    /// goes with. For comparison, and for a debugger.
    const void* mutex = nullptr;
    /// If parked for a shared_mutex: how many readers hold it.
    std::size_t readers = 0;
    /// Running: the stream's name. Otherwise the stream whose main pool is its home; empty if there
    /// is none, as for shared pools.
    std::string stream;
    const pool* home = nullptr;    ///< For comparison only: may already be gone.
    std::vector<ult_frame> trace;  ///< Innermost call first; see list_ults().
};

/// Lists every ULT that was created and has not ended, in no order; for debugging a program that
/// hangs. Each ULT is examined separately, so the list is not a consistent snapshot of the program.
/// Coroutines, tasklets and plain threads are not ULTs and not included.
///
/// `with_traces` adds call stacks. Stacks of suspended ULTs are read in place, without a switch.
/// For running ULTs, signal SIGRTMAX - 2 is sent to the stream's thread, whose handler (installed
/// once) reads the stack; a system call of the ULT may then fail with EINTR. The trace is empty if
/// the program handles or ignores that signal, or if the thread does not answer within 0.2 s
/// because it blocks the signal or the ULT stopped running. Traces need x86-64 or AArch64;
/// elsewhere, and for the ULT that a primary stream makes of its thread, they are empty.
///
/// Threads: any, including ULTs.
/// Failure: throws std::bad_alloc.
/// Cost:    examines some hundreds of ULTs at a time, which cannot run meanwhile, with one system
///          call per group; no stack is mapped or unmapped until all are done.
std::vector<ult_info> list_ults(bool with_traces = false);

/// What a stream has done with its time since it was made.
struct stream_activity {
    std::chrono::nanoseconds asleep{};  ///< Because nothing was ready; 0 if driven.
    std::uint64_t sleeps = 0;           ///< How often it fell asleep.
    std::uint64_t steals = 0;  ///< Units that its work_stealing_scheduler took from other pools.
    /// The longest time that a few units, a poller or a timer kept it from others, also because
    /// the system ran other threads: at least as long as the ULT that held it longest.
    std::chrono::nanoseconds longest_hold{};
    std::chrono::nanoseconds held{};  ///< Since others had a chance last; 0: it sleeps, or is idle.
};

/// Reads what the stream counts. Threads: any, while the stream lives. Cost: two clock readings;
/// streams pay for it where they sleep and steal, and three instructions for each batch of units.
stream_activity activity_of(const execution_stream& which);

/// Writes list_ults(true) to a file descriptor: a line per ULT, its trace indented below. Write
/// errors are ignored.
void print_ults(int fd);

/// Makes the signal print all ULTs to standard error, as print_ults() does; the program continues.
/// Replaces the signal's handler, which only notifies a thread of ours, started once. A fork()
/// child ignores the signal until it calls this itself.
///
///     print_ults_on_signal(SIGUSR1);  // then: kill -USR1 …
///
/// Failure: throws error{invalid} if the signal cannot be handled; error{no_memory} if a descriptor
///          or thread cannot be created.
void print_ults_on_signal(int signal_number);

}  // namespace amalgam
