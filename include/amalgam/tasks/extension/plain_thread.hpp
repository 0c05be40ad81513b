#pragma once

namespace amalgam::detail {

class dispatcher;

/// While it exists, the calling thread is no stream but a plain thread, and its waits block it. For
/// code on a stream's own stack that must wait there, as some interfaces of other libraries do.
///
/// Threads: the one that made it destroys it.
class as_plain_thread {
public:
    /// False: nothing changes.
    explicit as_plain_thread(bool really = true) noexcept;
    ~as_plain_thread();
    as_plain_thread(const as_plain_thread&) = delete;
    as_plain_thread& operator=(const as_plain_thread&) = delete;

private:
    dispatcher* stream_;
};

}  // namespace amalgam::detail
