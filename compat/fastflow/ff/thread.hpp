#pragma once

#include <cstddef>
#include <memory>

#include <ff/config.hpp>
#include <pthread.h>
#include <sys/types.h>

namespace ff {

/// A thread that calls svc_init(), svc() and svc_end(), again and again until it is stopped or
/// svc() returns FF_EOS; one that is to freeze waits between two rounds until it is thawed.
///
/// Owner:   whoever destroys it calls wait() before.
/// Threads: any, one at a time; the three functions are called by its own.
/// Failure: functions that return int return below 0, with a sentence on stderr. A svc_init() below
///          0, or an exception, ends the thread.
class ff_thread {
public:
    ff_thread(const ff_thread&) = delete;
    ff_thread& operator=(const ff_thread&) = delete;

    virtual void* svc(void* task) = 0;
    virtual int svc_init() { return 0; }
    virtual void svc_end() {}

    virtual int run(bool = false) { return spawn(); }
    /// -1: it runs already; -2: the system gives no thread.
    virtual int spawn(int cpu = -1);
    /// Waits for its end, after the round that it is in.
    virtual int wait();
    /// Waits until it is frozen. -1: its svc_init() has failed.
    virtual int wait_freezing();
    virtual void stop();
    /// It freezes at the end of its round.
    virtual void freeze();
    /// It goes on; with `again`, for one round.
    virtual void thaw(bool again = false, ssize_t = -1);
    virtual bool isfrozen() const;
    virtual bool done() const;

    virtual void no_mapping() {}
    pthread_t get_handle() const;
    size_t getTid() const { return getOSThreadId(); }
    size_t getOSThreadId() const;

protected:
    void* const GO_ON = FF_GO_ON;                ///< From svc(): another round.
    void* const EOS = FF_EOS;                    ///< No further round, unless it is to freeze.
    void* const EOS_NOFREEZE = FF_EOS_NOFREEZE;  ///< No freezing after this round.

    ff_thread();
    virtual ~ff_thread();

private:
    struct state;
    void main();
    bool round();
    std::unique_ptr<state> state_;
};

}  // namespace ff
