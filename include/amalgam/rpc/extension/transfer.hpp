#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/fabric/message.hpp>
#include <amalgam/fabric/region.hpp>
#include <amalgam/rpc/extension/core_reference.hpp>
#include <amalgam/rpc/peer.hpp>
#include <amalgam/tasks/future.hpp>
#include <amalgam/tasks/parking.hpp>
#include <amalgam/tasks/timer.hpp>
#include <amalgam/tasks/work_unit.hpp>

/// One-sided transfers between local memory and memory exposed by a peer: the basis of bulk, and of
/// arguments too long for a message.
namespace amalgam {
struct trace_context;
}

namespace amalgam::detail {

class counted_transfer;
class engine_core;
class transfer_table;
class transfer_record;
class transfer_span;
struct peer_state;
struct transfer_piece;

/// Memory of a peer (or our own, see exposure), and transfer settings.
struct transfer_target {
    engine_core* core = nullptr;
    peer there;
    remote_key key;  ///< For the peer's port that `there` is reached through.
    std::uint64_t offset = 0;
    /// Time left; inside a handler, the earlier of this and the handler's own applies.
    std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max();
    /// Size posted at once; several pieces if small. 0: chosen by the engine.
    std::size_t piece_bytes = 0;
};

struct transfer_timer : timer {
    using timer::timer;
    transfer_record* transfer = nullptr;
};

/// One get or put of any length, from start to outcome.
///
/// It is cut into pieces, a few of which are posted at a time, so that a long transfer leaves room
/// for others. Pieces refused by a full port are posted after the port has made progress.
/// Owner:   its maker; it, the local list and the bytes must stay in place between submit() and
///          over().
/// Threads: the maker's until submit(), the engine's stream until over(), then the maker's.
/// Failure: exactly one outcome: timed_out, canceled, closed; unreachable, disconnected; invalid
///          (past the end), denied (wrong rights, or a forged or stale key), no_memory. Part of the
///          bytes may have moved by then; none moves after over(), at either end. Exception: after
///          a put that ends as disconnected, unreachable or closed, the peer may still write data
///          it had received. After a deadline or cancel, over() may take a round trip or, if the
///          peer is unresponsive, the silence limit.
/// Cost:    no allocation in steady state.
class transfer_record {
public:
    explicit transfer_record(const transfer_target& target);
    transfer_record(const transfer_record&) = delete;
    transfer_record& operator=(const transfer_record&) = delete;
    virtual ~transfer_record();

    /// Call one of the two before submit(): direction and local bytes.
    void get(scatter into) noexcept;
    void put(gather from) noexcept;

    failure why;  ///< The outcome.
    /// Bytes moved so far, in pieces; not in order.
    std::uint64_t moved() const noexcept { return moved_; }
    std::uint64_t total() const noexcept { return total_; }

protected:
    /// Hands it to the engine; over() runs exactly once, here or on the engine's stream.
    void submit() noexcept;
    /// The same for a part of what a handler of that trace began; null: none did.
    void submit(const trace_context* under) noexcept;
    /// Requests an early end. Any thread, until over(). The record must stay alive until release().
    /// False: the engine has ended, and no longer accesses the local bytes.
    bool request_cancel() noexcept;

    /// The transfer has ended and `why` is set. The record belongs to its maker again, and may be
    /// destroyed.
    virtual void over() noexcept = 0;
    /// The engine has finished with a request_cancel().
    virtual void release() noexcept {}
    /// moved() has grown. Runs on the engine's stream. A failure ends the transfer with it.
    virtual failure progressed() noexcept { return {}; }

    engine_core* core_;

private:
    friend class transfer_table;
    friend struct transfer_piece;
    enum class state : std::uint8_t { fresh, running, ended };
    struct posted_task : work_unit {
        posted_task(run_function what, transfer_record& mine) noexcept
            : work_unit(what), whose(mine) {}
        transfer_record& whose;
    };
    static void run_submit(work_unit& self) noexcept;
    static void run_cancel(work_unit& self) noexcept;

    peer there_;
    remote_key key_;
    std::uint64_t offset_;
    std::chrono::nanoseconds timeout_;
    clock::time_point deadline_ = clock::time_point::max();
    std::size_t piece_bytes_;
    scatter into_;
    gather from_;
    bool is_put_ = false;
    std::uint64_t total_ = 0;
    std::unique_ptr<transfer_span> span_;        // While somebody records.
    std::unique_ptr<counted_transfer> counted_;  // While the engine counts; of no part.

    // The stream's:
    state state_ = state::fresh;
    bool canceled_early_ = false;  // Before submit().
    bool waiting_ = false;         // For room at the port, or
    bool its_turn_ = false;        // only for its turn.
    unsigned held_ = 0;            // Current users; over() must wait for them.
    unsigned at_port_ = 0;         // Pieces at the port; over() must wait for them, too.
    std::uint64_t asked_ = 0;
    std::uint64_t moved_ = 0;
    std::size_t segment_ = 0;  // Start of the next piece in the local list.
    std::size_t within_ = 0;
    transfer_piece* pieces_ = nullptr;  // At the port.
    peer_state* peer_ = nullptr;        // While running.
    transfer_record* previous_of_peer_ = nullptr;
    transfer_record* next_of_peer_ = nullptr;
    transfer_record* previous_waiting_ = nullptr;
    transfer_record* next_waiting_ = nullptr;
    posted_task submit_;
    posted_task cancel_;
    std::optional<transfer_timer> timer_;
};

/// A transfer whose maker parks until it ends.
class waited_transfer : public transfer_record {
public:
    using transfer_record::transfer_record;
    /// Submits, and returns when the transfer is over. Throws error{invalid} where the caller
    /// cannot wait; error{canceled}, once it is over, if the waiting ULT was canceled meanwhile.
    const failure& run();

private:
    void over() noexcept final { who_.unpark(); }
    waiter who_;
};

/// A transfer behind a future, with its own copy of the local list.
class future_transfer : public future_state<void>, public transfer_record {
public:
    explicit future_transfer(const transfer_target& target)
        : transfer_record(target), alive_(*core_) {}

    void get_copy(scatter into);
    void put_copy(gather from);
    /// Precondition: made with new. Takes ownership. Destroying or canceling the future cancels the
    /// transfer; the bytes are the caller's again once the future is ready.
    future<void> launch() noexcept;

protected:
    /// The future was destroyed or canceled early: requests an early end. False: the engine has
    /// ended, or belongs to the process that forked this one: nothing accesses the bytes any more,
    /// and the future may never become ready.
    virtual bool abandoned() noexcept;

private:
    void over() noexcept override;
    void release() noexcept override { drop_reference(); }

    core_reference alive_;
    mutable_bytes one_into_;
    const_bytes one_from_;
    std::vector<mutable_bytes> many_into_;
    std::vector<const_bytes> many_from_;
};

}  // namespace amalgam::detail
