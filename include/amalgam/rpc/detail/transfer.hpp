#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/fabric/message.hpp>
#include <amalgam/fabric/region.hpp>
#include <amalgam/rpc/detail/call.hpp>
#include <amalgam/rpc/peer.hpp>
#include <amalgam/tasks/future.hpp>
#include <amalgam/tasks/parking.hpp>
#include <amalgam/tasks/timer.hpp>
#include <amalgam/tasks/work_unit.hpp>

/// One-sided transfers between local memory and memory that a peer exposed: what bulk, and
/// arguments too long for a message, stand on.
namespace amalgam::detail {

class engine_core;
class transfers;
class transfer_record;
struct peer_state;
struct transfer_piece;

/// Memory of a peer's (or our own, see exposure), and how to go about it.
struct transfer_target {
    engine_core* core = nullptr;
    peer there;
    remote_key key;  ///< Of the peer's port that `there` is reached through.
    std::uint64_t offset = 0;
    /// Time left; within a handler the earlier of this and the handler's own counts.
    std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max();
    /// What is posted at once; more of it, if it is small. 0: as suits the engine.
    std::size_t piece_bytes = 0;
};

struct transfer_timer : timer {
    using timer::timer;
    transfer_record* transfer = nullptr;
};

/// One get or put of any length, from its start to its outcome.
///
/// It is cut into pieces, a few of which are posted at a time, so that a long one leaves room for
/// others. What a full port refuses goes out after the port made progress.
/// Owner:   who made it; stays where it is from submit() until over(), as do the local list
///          and its bytes.
/// Threads: the maker's until submit(), the engine's stream until over(), then the maker's.
/// Failure: exactly one outcome: timed_out, canceled, closed; unreachable, disconnected; invalid
///          (past the end), denied (wrong rights, or the key is forged or stale), no_memory.
///          Part of the bytes may have moved then; none moves after over(), at either side. But
///          of a put that ends as disconnected, unreachable or closed the peer may still write
///          what it had received. Over() may come a round trip, or where the peer stands still
///          the silence limit, after a deadline or cancel.
/// Cost:    no allocation in steady state.
class transfer_record {
public:
    explicit transfer_record(const transfer_target& target);
    transfer_record(const transfer_record&) = delete;
    transfer_record& operator=(const transfer_record&) = delete;
    virtual ~transfer_record() = default;

    /// Which way, and between which local bytes: one of the two, before submit().
    void get(scatter into) noexcept;
    void put(gather from) noexcept;

    failure why;  ///< How it ended.
    /// Moved so far, in pieces; not in order.
    std::uint64_t moved() const noexcept { return moved_; }
    std::uint64_t total() const noexcept { return total_; }

protected:
    /// Hands it to the engine; over() runs exactly once, here or on the engine's stream.
    void submit() noexcept;
    /// Asks for an early end. Any thread; until over(). The record must stay until release().
    /// False: the engine has ended, and touches the local bytes no more.
    bool request_cancel() noexcept;

    /// It has ended: `why` is set. The record is the maker's again, and may be gone.
    virtual void over() noexcept = 0;
    /// The engine is done with a request_cancel().
    virtual void release() noexcept {}
    /// moved() has grown. On the engine's stream. Not ok: ends the transfer so.
    virtual failure progressed() noexcept { return {}; }

    engine_core* core_;

private:
    friend class transfers;
    friend struct transfer_piece;
    enum class state : std::uint8_t { fresh, running, ended };
    struct errand : work_unit {
        errand(run_function what, transfer_record& mine) noexcept : work_unit(what), whose(mine) {}
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

    // The stream's:
    state state_ = state::fresh;
    bool canceled_early_ = false;  // Before it was submitted.
    bool waiting_ = false;         // For room at the port, or
    bool its_turn_ = false;        // only for others to have theirs.
    unsigned held_ = 0;            // By who looks at it: over() must wait.
    unsigned at_port_ = 0;         // Pieces: likewise.
    std::uint64_t asked_ = 0;
    std::uint64_t moved_ = 0;
    std::size_t segment_ = 0;  // Where the next piece starts in the local list.
    std::size_t within_ = 0;
    transfer_piece* pieces_ = nullptr;  // At the port.
    peer_state* peer_ = nullptr;        // While running.
    transfer_record* previous_of_peer_ = nullptr;
    transfer_record* next_of_peer_ = nullptr;
    transfer_record* previous_waiting_ = nullptr;
    transfer_record* next_waiting_ = nullptr;
    errand submit_;
    errand cancel_;
    std::optional<transfer_timer> timer_;
};

/// A transfer that its maker waits for, parked.
class waited_transfer : public transfer_record {
public:
    using transfer_record::transfer_record;
    /// Submits, and returns when it is over. Throws error{invalid} where nobody can wait;
    /// error{canceled}, when it is over, if the ULT that waits was canceled meanwhile.
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
    /// Precondition: made by new. Takes the object over. Destroying or canceling the future
    /// cancels the transfer; the bytes are the caller's again once the future is ready.
    future<void> launch() noexcept;

protected:
    /// The future was destroyed or canceled before its time: asks for an early end.
    /// Asks for its end. False: the engine has ended, or is the process's that forked this one:
    /// nobody touches the bytes any more, and the future may never be ready.
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
