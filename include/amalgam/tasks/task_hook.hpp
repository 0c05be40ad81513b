#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

#include <amalgam/core/detail/memory.hpp>
#include <amalgam/tasks/work_unit.hpp>

namespace amalgam {

class execution_stream;

/// What happens to units and streams, as told to a task_hook.
enum class task_event : std::uint8_t {
    created,         ///< A ULT or tasklet is about to enter its pool.
    running,         ///< A stream goes on with it; the first time, it starts.
    yielded,         ///< A ULT gives way, and is ready.
    parked,          ///< A ULT waits.
    resumed,         ///< A ULT's wait is over, and it is ready. Left out if it runs at once.
    ended,           ///< A ULT or tasklet has ended; any other unit has returned to its stream.
    canceled,        ///< ult::cancel() was called.
    stream_started,  ///< A stream is about to start; also by revive().
    stream_stopped   ///< A stream has been stopped.
};
/// For example "running".
const char* name(task_event what) noexcept;

/// What a task_hook is told of one event.
struct task_event_info {
    task_event what = task_event::created;  ///< What happened.
    unit_kind kind = unit_kind::other;      ///< Of the unit; `other` for streams.
    /// Constant while the unit lives; as ult_info::id. Null for streams. Used again after `ended`.
    const void* id = nullptr;
    std::string_view name;               ///< Of the ULT; may be empty. Valid during the call.
    const char* waits_for = nullptr;     ///< With `parked`: as ult_info::waits_for.
    execution_stream* stream = nullptr;  ///< That of the event; null: a plain thread's.
};

/// Tells a function of yours what happens to units and streams, for profilers and tracers.
///
/// From the next batch of work on (some 256 switches) each stream tells of all its units, of those
/// that began before too. A unit's events come in their order, from one thread at a time; those of
/// different units from many threads at once. There is no time in an event: read the clock you
/// like.
///
/// The function is called inside Amalgam, on the stack of the ULT concerned or of a stream. There
/// it counts as a plain thread: it must not wait for a ULT, which would block the stream, and must
/// not call list_ults(), cancel(), or create or destroy hooks, which throws or logs an error.
/// Events that it causes are not told. It needs some stack: do little.
///
/// Threads: any may create and destroy. When the destructor returns, the function is not called any
///          more.
/// Failure: throws error{invalid} for an empty function, or in a hook; error{no_memory} if 8 hooks
///          exist. Exceptions from the function are logged and ignored. A child that it forked on a
///          stream's thread ends when it returns.
/// Cost:    without hooks, a load and a branch per creation, resume and batch; nothing per switch.
///          With one, some 20 ns per event, and what the function does.
class task_hook {
public:
    /// Called for each event, on the thread that it happens on.
    using function = std::function<void(const task_event_info&)>;
    explicit task_hook(function tell);
    ~task_hook();
    task_hook(const task_hook&) = delete;
    task_hook& operator=(const task_hook&) = delete;

private:
    std::unique_ptr<function> tell_;
    std::size_t slot_;
};

}  // namespace amalgam
