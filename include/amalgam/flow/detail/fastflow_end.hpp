#pragma once

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <amalgam/core/result.hpp>
#include <amalgam/flow/fastflow_options.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/tasks/condition_variable.hpp>
#include <amalgam/tasks/mutex.hpp>

namespace amalgam::detail {

/// Common base of a FastFlow program's receiver and sender: the engine, the far ends, and shutdown
/// on failure.
///
/// Owner:   the node.
/// Threads: any.
class fastflow_end {
public:
    fastflow_end(const fastflow_end&) = delete;
    fastflow_end& operator=(const fastflow_end&) = delete;

    engine& over() noexcept { return engine_; }
    std::optional<failure> failed() const;
    /// Only the first failure counts; none after a normal end of stream.
    void fail(failure why);
    /// If this end failed, waits until on_failure has returned; the node's last step.
    void wait_for_last_words();

protected:
    /// One per sender (in a receiver) or per receiver (in a sender).
    struct far_end {
        std::string name;
        peer who;            ///< Empty until it joins.
        bool ended = false;  ///< Losing it no longer loses items.
    };

    fastflow_end(endpoints where, fastflow_options options);
    ~fastflow_end() = default;

    /// Call listen() in derived constructors, when calls may arrive; call close() first in their
    /// destructors.
    void listen();
    void close();

    /// Ends what peers wait for here; called without the lock.
    virtual void refuse(const std::string& /*why*/) {}
    /// Joins its ULTs; called without the lock.
    virtual void end_ults() {}
    virtual void wake_all() noexcept { changed_.notify_all(); }

    /// The error for a far end that is gone too early.
    static failure loss_of(const far_end& gone, status why);

    fastflow_options options_;
    mutable mutex lock_;
    condition_variable changed_;
    std::vector<far_end*> far_ends_;
    std::optional<failure> failed_;
    bool done_ = false;
    bool ended_ = false;  ///< The stream ended normally.

private:
    const far_end* find(const peer& who) const noexcept;
    void hear_failure(const std::string& why);
    void lose(const peer& who, status why);
    void say_why();
    void tell_far_ends(const std::string& why);
    void stop();

    bool said_ = false;  ///< on_failure has returned.
    engine engine_;
    peer_lost_subscription told_;
    std::thread last_words_;
};

}  // namespace amalgam::detail
