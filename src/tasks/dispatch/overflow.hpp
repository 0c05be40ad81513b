#pragma once

#include "tasks/dispatch/thread_store.hpp"

namespace amalgam::detail {

class dispatcher;

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
    overflow_watch(const dispatcher& which, thread_store* own) noexcept
        : of(which), outer(innermost_) {
        innermost_ = this;
        if (own != nullptr && !own->for_signals) [[unlikely]]
            prepare(*own);
    }
    ~overflow_watch() { innermost_ = outer; }
    overflow_watch(const overflow_watch&) = delete;
    overflow_watch& operator=(const overflow_watch&) = delete;

    const dispatcher& of;
    const overflow_watch* const outer;

    /// Of the calling thread, for its signal handler.
    static const overflow_watch* innermost() noexcept { return innermost_; }

private:
    static void prepare(thread_store& own) noexcept;

    // initial-exec: the handler must not be the one that allocates it.
    [[gnu::tls_model("initial-exec"),
      gnu::visibility(
          "hidden")]] static inline constinit thread_local const overflow_watch* innermost_ =
        nullptr;
};

}  // namespace amalgam::detail
