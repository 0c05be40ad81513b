#pragma once

#include <mutex>
#include <string>
#include <vector>

#include <amalgam/tasks/pool.hpp>
#include <amalgam/tasks/scheduler.hpp>

#include "tasks/dispatch/dispatcher.hpp"
#include "tasks/idle/bell.hpp"

namespace amalgam::detail {

/// The pools that a stream serves for its schedulers.
///
/// Threads: the stream's, or whoever makes, drives or stops it; serves_seen() from any.
class served_pools {
public:
    /// `stream`: its name, for errors. `stays`: it has a thread of its own, or is primary.
    served_pools(dispatcher& by, bell& rings, const std::string& stream, bool stays) noexcept
        : by_(by), bell_(rings), stream_(stream), stays_(stays) {}

    /// Attaches all or none. Throws error{invalid} if another stream serves one already.
    void attach(const scheduler& of);
    /// Whatever its scheduler, a primary stream serves the pool that its thread's ULT lives in.
    void attach_own();
    void detach(const scheduler& of) noexcept;
    void detach_all() noexcept;
    /// The stream is about to stop: others that serve them need not leave its work to it.
    void prepare_to_detach() noexcept;
    /// After detach_all(), for a stream that starts again.
    void begin_again(bool stays) noexcept { stays_ = stays; }
    /// In a fork() child.
    void detach_in_child() noexcept;

    /// The caller holds lock(), and may be any thread.
    template <typename Look>
    void for_each_locked(const Look& look) const {
        for (const served& each : all_)
            look(*each.what);
    }

    /// Whether there is work that no stream would run after this one.
    bool has_work_of_its_own() const noexcept;
    /// Wakes others for what is left.
    void hand_over() noexcept;
    /// The pool must outlive the call.
    bool serves_seen(const pool& what) const noexcept { return what.served_by(by_); }

    /// Guards the lists of all streams. Only changes take it, as only a fork() child reads them
    /// from another thread.
    static std::mutex& lock() noexcept;

private:
    struct served {
        pool* what;
        unsigned times;  // a stacked scheduler may share pools with the one below
    };
    std::vector<served>::iterator find(const pool& what) noexcept;
    void detach_pool(pool& what) noexcept;

    dispatcher& by_;
    bell& bell_;
    const std::string& stream_;
    bool stays_;
    std::vector<served> all_;
};

}  // namespace amalgam::detail
