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

/// What a FastFlow program's receiver and sender both are: an engine, who is at the far ends, and
/// how it all ends when something breaks.
///
/// Owner:   the node.
/// Threads: any.
class fastflow_end {
public:
    fastflow_end(const fastflow_end&) = delete;
    fastflow_end& operator=(const fastflow_end&) = delete;

    engine& over() noexcept { return engine_; }
    std::optional<failure> failed() const;
    /// The first failure counts; after a good end of the stream none does.
    void fail(failure why);
    /// Returns once on_failure has, if this end failed: what a node does last.
    void wait_for_last_words();

protected:
    /// Of a receiver one for each sender; of a sender one for each receiver.
    struct far_end {
        std::string name;
        peer who;            ///< Nobody before it has joined.
        bool ended = false;  ///< Losing it loses no items any more.
    };

    fastflow_end(endpoints where, fastflow_options options);
    ~fastflow_end() = default;

    /// In the constructors of what derives from this, before anybody can call; close() comes first
    /// in their destructors.
    void listen();
    void close();

    /// Ends what others wait for here; without the lock.
    virtual void refuse(const std::string& /*why*/) {}
    /// Joins the ULTs that it has; without the lock.
    virtual void end_ults() {}
    virtual void wake_all() noexcept { changed_.notify_all(); }

    /// The sentence for a far end that is gone too early.
    static failure loss_of(const far_end& gone, status why);

    fastflow_options options_;
    mutable mutex lock_;
    condition_variable changed_;
    std::vector<far_end*> far_ends_;
    std::optional<failure> failed_;
    bool done_ = false;
    bool ended_ = false;  ///< The stream, and well.

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
