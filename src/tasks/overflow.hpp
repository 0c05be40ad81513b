#pragma once

namespace amalgam::detail {

class stream;

/// While one lives, the calling thread is stream `of`: when the ULT that it runs touches the guard
/// of its stack, one sentence on standard error says so before the process ends as it would have.
///
/// The first one of the process installs a handler of SIGSEGV. Every other fault goes to the
/// handler that was there before.
/// The first one of a thread gives it an alternate signal stack until it ends, unless it has one:
/// on the stack that overflowed no handler can run.
///
/// Threads: lives and dies on one; nested like the streams that a thread runs.
class overflow_watch {
public:
    explicit overflow_watch(const stream& of) noexcept;
    ~overflow_watch();
    overflow_watch(const overflow_watch&) = delete;
    overflow_watch& operator=(const overflow_watch&) = delete;

    const stream& of;
    const overflow_watch* const outer;
};

}  // namespace amalgam::detail
