#pragma once

#include <cstddef>

namespace amalgam {

/// Something a stream looks at between work units: a port, a device, a queue.
///
/// Owner:   the user; it must stay until remove_poller() returned.
/// Threads: called only by the stream it was added to, on the stream's own stack:
///          it must not wait (mutexes that may be held, park), but may push work.
class poller {
public:
    virtual ~poller() = default;

    /// Does what can be done now; returns how much happened. Never blocks.
    virtual std::size_t poll() noexcept = 0;
    /// A descriptor that is readable when poll() would do something; -1 when there
    /// is none, and execution_stream::wake() is called instead. Asked once, when added.
    virtual int wait_handle() const noexcept = 0;
    /// Arms the wait handle before the stream sleeps. False: there is work, poll again.
    virtual bool prepare_to_sleep() noexcept = 0;
};

}  // namespace amalgam
