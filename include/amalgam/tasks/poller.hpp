#pragma once

#include <cstddef>

namespace amalgam {

/// Something a stream polls between work units: a port, a device, a queue.
///
/// Owner:   the user; must live until remove_poller() returns.
/// Threads: called only by its stream, on the stream's own stack. It must not wait (lock a mutex
///          that may be held, park), but may push work.
class poller {
public:
    virtual ~poller() = default;

    /// Does what can be done now; returns how much was done. Never blocks.
    virtual std::size_t poll() noexcept = 0;
    /// False: poll() would find nothing now, so a driven stream leaves it out. A poller that cannot
    /// tell says true, and is polled until it finds nothing.
    virtual bool has_work() noexcept;
    /// Asked after poll(), and what ran then: false if another one would find nothing but what came
    /// since, which the next turn finds. A driven stream then ends its turn.
    virtual bool has_more() noexcept;
    /// A descriptor that is readable when poll() has work. -1: none; execution_stream::wake() is
    /// called instead. Queried once, when added.
    virtual int wait_handle() const noexcept = 0;
    /// Arms the wait handle before the stream sleeps. False: there is work, poll again.
    virtual bool prepare_to_sleep() noexcept = 0;
};

}  // namespace amalgam
