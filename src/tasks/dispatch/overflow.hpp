#pragma once

namespace amalgam::detail {

class dispatcher;
struct thread_store;

/// While it exists, the calling thread is stream `of`. If the ULT it runs, or what the loop of a
/// primary stream runs, touches its stack guard, one sentence on standard error says so before the
/// process ends as usual.
///
/// The first one in the process installs a SIGSEGV handler. Every other fault goes to the previous
/// handler. The first one on a thread gives it an alternate signal stack until the thread ends,
/// unless it has one: no handler can run on an overflowed stack.
///
/// Threads: created and destroyed on one thread; nested like the streams that a thread runs.
class overflow_watch {
public:
    /// `own`: the calling thread's, or null.
    overflow_watch(const dispatcher& of, thread_store* own) noexcept;
    ~overflow_watch();
    overflow_watch(const overflow_watch&) = delete;
    overflow_watch& operator=(const overflow_watch&) = delete;

    const dispatcher& of;
    const overflow_watch* const outer;
};

}  // namespace amalgam::detail
