#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <new>
#include <utility>

#include <amalgam/core/buffer.hpp>
#include <amalgam/core/clock.hpp>
#include <amalgam/core/counter.hpp>
#include <amalgam/core/detail/returned_child.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/fabric/port.hpp>
#include <amalgam/rpc/extension/core_reference.hpp>
#include <amalgam/rpc/peer.hpp>
#include <amalgam/tasks/extension/drive.hpp>
#include <amalgam/tasks/parking.hpp>
#include <amalgam/tasks/ult.hpp>
#include <amalgam/tasks/work_unit.hpp>

#include "rpc/context/streams.hpp"

namespace amalgam {
class call_context;
}

namespace amalgam::detail {

class engine_core;
class statistics_table;

/// What every part of an engine needs: its streams, its clock and its buffers.
///
/// The state of all parts belongs to the first stream. Code on it calls them directly; other
/// threads hand over work, or hop there with on_stream().
/// Owner:   the engine, which is also the only implementation of the private functions.
/// Threads: as stated per member.
class engine_context {
public:
    engine_context(const engine_context&) = delete;
    engine_context& operator=(const engine_context&) = delete;

    // ---- any thread

    /// For values that refer to the whole engine: see origin, core_reference.
    engine_core& core() const noexcept { return core_; }
    bool owns(const peer& who) const noexcept { return who.owner() == &core_; }

    /// Whether the caller may access the stream's data: it runs on the stream, or nothing runs
    /// concurrently.
    bool on_owner() const noexcept { return on_owner(execution_stream::current()); }
    /// The same where the caller knows its stream, which is null on none.
    bool on_owner(const execution_stream* here) const noexcept {
        return here == &streams_.first() || (driven_ ? here == nullptr : on_idle_loop());
    }
    /// Throws error{invalid} where the caller would wait forever.
    void check_may_wait() const;
    /// Throws error{closed} in a child of fork().
    void check_not_forked() const;
    /// Runs the unit on the stream, in posting order. False: the engine has ended.
    bool hand_over(work_unit& unit) noexcept;
    /// Runs `work()` on the stream and waits for it. Throws what it throws, and error{closed} if
    /// the engine has ended.
    template <typename Work>
    void on_stream(Work&& work);
    /// Whether the caller could wait for on_stream(): not on another stream's own stack, where its
    /// callbacks, inline handlers and tasklets run.
    bool may_hop() const noexcept {
        return on_owner() || this_task::in_ult() || execution_stream::current() == nullptr;
    }
    /// For destructors that may not hop: runs `work()`, which must not throw, on the stream later,
    /// in order with what else is handed over. Not at all if the engine has ended. False: out of
    /// memory, and `work` is untouched.
    template <typename Work>
    bool run_later(Work& work) noexcept;
    /// For destructors: runs `work()`, which must not throw, on the stream, and waits for it where
    /// the caller may. Not at all if the engine has ended. False: out of memory, and `work` is
    /// untouched.
    template <typename Work>
    bool run_now_or_later(Work& work) noexcept;
    /// Parks `who` until its call or transfer unparks it, once. If the waiting ULT is canceled,
    /// runs `cancel()` on the stream, waits for the end, so that borrowed memory is free again, and
    /// throws error{canceled}.
    template <typename Cancel>
    void wait_for_end(waiter& who, Cancel&& cancel);
    /// Until end_handing_over(), which must follow in any case, the streams keep running; false:
    /// they may have ended.
    bool begin_handing_over() noexcept {
        handing_over_.fetch_add(1, std::memory_order_seq_cst);
        return !closed_.load(std::memory_order_seq_cst);
    }
    void end_handing_over() noexcept { handing_over_.fetch_sub(1, std::memory_order_release); }
    /// Throws error{closed} after the end.
    void check_runs() const;
    /// The message of error{closed}.
    const char* why_closed() const noexcept;
    bool is_of_parent() const noexcept { return forked_.load(std::memory_order_relaxed); }
    /// Called after a user function that may have forked: ends the child.
    void stay_in_parent() const noexcept {
        if (forked_.load(std::memory_order_relaxed)) [[unlikely]]
            end_returned_child();
    }

    engine_streams& streams() noexcept { return streams_; }
    execution_stream& stream() noexcept { return streams_.first(); }
    buffer_pool& buffers() noexcept { return buffers_; }
    clock::time_point now() const noexcept { return clock_->now(); }
    /// What is counted, on the stream; null unless engine_options::statistics says so.
    statistics_table* statistics() const noexcept { return statistics_; }
    /// In virtual time.
    bool driven() const noexcept { return driven_; }
    /// The earlier of `timeout` from now and the deadline of the call being served, if any.
    clock::time_point deadline_after(std::chrono::nanoseconds timeout,
                                     const call_context* serving) const noexcept {
        const bool unlimited = timeout == std::chrono::nanoseconds::max();
        return deadline_after(timeout, serving, unlimited ? clock::time_point{} : now());
    }
    /// The same, for who has just read the clock.
    static clock::time_point deadline_after(std::chrono::nanoseconds timeout,
                                            const call_context* serving,
                                            clock::time_point now) noexcept;

    // ---- the stream only

    /// While one lives, user functions may run above it on the stack, and an operation below is
    /// incomplete: the engine does not end before.
    class busy {
    public:
        explicit busy(engine_context& context) noexcept : context_(context) { ++context_.busy_; }
        ~busy() { --context_.busy_; }
        busy(const busy&) = delete;
        busy& operator=(const busy&) = delete;

    private:
        engine_context& context_;
    };
    bool is_busy() const noexcept { return busy_ != 0; }
    /// Called when code run by the engine's driver has returned: ends an engine destroyed in it.
    void settle() noexcept {
        if (orphaned_) [[unlikely]]
            end_orphan();
    }
    /// The same after a call from outside on the thread of an idle loop: a user function called
    /// there may have destroyed the engine. Afterwards this may be gone.
    void settle_idle() noexcept {
        if (orphaned_) [[unlikely]]
            end_idle_orphan();
    }
    /// Call when a call, in either direction, or a transfer has ended.
    void look_whether_quiet() noexcept {
        if (quiet_ != nullptr) tell_if_quiet();
    }
    /// Received or fetched data does not match its checksum.
    void found_damage() noexcept { corrupt_.add(); }

protected:
    explicit engine_context(engine_core& whole) : core_(whole) {}
    ~engine_context() = default;

    engine_core& core_;
    buffer_pool buffers_;
    bool driven_ = false;
    port* driver_port_ = nullptr;  // While driven: tells the network that the stream has work.
    const clock* clock_ = nullptr;
    statistics_table* statistics_ = nullptr;  // Set before the streams start.
    mutable engine_streams streams_;
    // With progress_by::caller: the loop's thread, and whether somebody ends the engine. Else, and
    // in a child of fork(), the stream is kept from progress() for good.
    drive_turns turns_;
    static constexpr unsigned kept_to_end = 2;
    static constexpr unsigned kept_for_good = 4;

    waiter* quiet_ = nullptr;  // stop(), while waiting.
    unsigned busy_ = 0;        // See busy; the stream's.
    bool orphaned_ = false;    // Destroyed inside code run by its driver; the driver's.
    // Handing over announces itself, then checks closed_. Closing sets closed_, then waits for
    // announced hand-overs. So nothing is handed to a stream that has ended.
    std::atomic<bool> closed_{false};
    std::atomic<bool> forked_{false};  // This process is a fork of the engine's.
    std::atomic<std::size_t> handing_over_{0};
    owned_counter corrupt_;

private:
    template <typename Cancel>
    void end_canceled(waiter& who, Cancel& cancel);
    /// Whether this is the thread that calls progress(), outside of progress().
    bool on_idle_loop() const noexcept {
        // Woken, as the caller's next action may need progress().
        return turns_.has_driver() && turns_.wake_if_driver();
    }
    virtual void end_orphan() noexcept = 0;
    virtual void end_idle_orphan() noexcept = 0;
    virtual void tell_if_quiet() noexcept = 0;
};

/// What users hold (calls, transfers, peers …) names its engine as a whole. Functions of this kind
/// lead from there to a part of it; each is declared with the part, and engine/ implements it.
engine_context& context_of(engine_core& core) noexcept;

template <typename Work>
void engine_context::on_stream(Work&& work) {
    if (on_owner()) return work();
    struct hop final : work_unit {
        explicit hop(Work& what) : work_unit(&hop::run_it), work(what) {
            who.waits_for("rpc engine");
        }
        static void run_it(work_unit& self) noexcept {
            auto& me = static_cast<hop&>(self);
            try {
                me.work();
            } catch (...) {
                me.failed = std::current_exception();
            }
            me.who.unpark();
        }
        Work& work;
        waiter who;
        std::exception_ptr failed;
    };
    hop there(work);
    if (!hand_over(there)) {
        throw error(errc::closed, why_closed());
    }
    there.who.park();
    if (there.failed) std::rethrow_exception(there.failed);
}

template <typename Work>
bool engine_context::run_later(Work& work) noexcept {
    struct posted_task final : work_unit {
        posted_task(engine_core& core, Work& what) noexcept
            : work_unit(&posted_task::run_it), alive(core), work(std::move(what)) {}
        static void run_it(work_unit& self) noexcept {
            auto* const me = static_cast<posted_task*>(&self);
            me->work();
            delete me;
        }
        core_reference alive;
        Work work;
    };
    auto* const later = new (std::nothrow) posted_task(core_, work);
    if (later == nullptr) return false;
    if (!hand_over(*later)) delete later;
    return true;
}

template <typename Work>
bool engine_context::run_now_or_later(Work& work) noexcept {
    if (!may_hop()) return run_later(work);
    try {
        on_stream(work);
    } catch (const std::exception&) {
        // The engine has ended.
    }
    return true;
}

template <typename Cancel>
[[gnu::always_inline]] inline void engine_context::wait_for_end(waiter& who, Cancel&& cancel) {
    who.allow_cancel();
    if (!who.park_once_until(waiter::time_point::max())) [[unlikely]]
        end_canceled(who, cancel);
}

template <typename Cancel>
[[gnu::noinline]] void engine_context::end_canceled(waiter& who, Cancel& cancel) {
    try {
        const cancel_later it_must_end;
        on_stream(cancel);
    } catch (const error&) {
        // The engine has ended, and so has the operation.
    }
    who.park();
    throw_if_canceled();
}

}  // namespace amalgam::detail
