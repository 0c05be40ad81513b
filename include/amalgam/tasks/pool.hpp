#pragma once

#include <atomic>
#include <cstddef>

#include <amalgam/tasks/work_unit.hpp>

namespace amalgam {

/// How many streams may serve a pool. Any thread may push into either.
enum class pool_access {
    one_stream,  ///< Needs no lock to pop, and a ULT stays on its stream.
    any_stream   ///< Its work goes to whichever stream is free.
};

/// Where ready work waits for streams. A user may write one: derive, and call notify() after
/// each push that came from outside the serving stream, and drop_left() in the destructor.
///
/// Owner:   the user, or the stream for its own main_pool(). It must outlive the streams that
///          serve it, and should outlive every ULT created into it: destroy it once ults() is 0
///          and it is empty().
/// Failure: what is left in it when it is destroyed never runs again; a warning in the log counts
///          it, and names some. join() of such a ULT or tasklet throws error{canceled}. Nothing on
///          a ULT's stack is destroyed, and the stack is kept for good, as others may still refer
///          to it: unparking it later does nothing. The body of what has not begun is destroyed by
///          join(), or at once when it was detached. Units of other kinds are forgotten.
/// Threads: push() from any thread; pop(), requeue() and remove() only from a serving stream.
class pool {
public:
    explicit pool(pool_access access = pool_access::one_stream) noexcept : access_(access) {}
    pool(const pool&) = delete;
    pool& operator=(const pool&) = delete;
    virtual ~pool();

    /// Adds a ready unit, from any thread. Never allocates.
    virtual void push(work_unit& unit) noexcept = 0;
    /// The same, but whatever the pool's order, it comes before the first unit that waits and has a
    /// lower work_unit::priority. A pool that knows no better just pushes it.
    virtual void push_by_priority(work_unit& unit) noexcept { push(unit); }
    /// Takes back a unit that yielded: whatever the pool's order, the others come first.
    virtual void requeue(work_unit& unit) noexcept { push(unit); }
    /// Takes the next unit, or null. Only a serving stream calls it.
    virtual work_unit* pop() noexcept = 0;
    /// Takes this unit out of turn. False: it does not wait here, or this pool cannot.
    virtual bool remove(work_unit&) noexcept { return false; }
    /// No unit to pop. A stream asks this between saying that it will sleep and sleeping, so
    /// it must see every push whose notify() found the stream awake: read with seq_cst what
    /// push() writes with seq_cst, or look under the lock that push() takes.
    virtual bool empty() const noexcept = 0;
    /// How many units wait; exact only when nobody pushes or pops.
    virtual std::size_t size() const noexcept = 0;

    pool_access access() const noexcept { return access_; }
    /// How many ULTs have their home here: ready, running and parked. Exact only when none
    /// starts, ends or moves.
    std::size_t ults() const noexcept {
        return static_cast<std::size_t>(own_ults_.load(std::memory_order_relaxed) +
                                        other_ults_.load(std::memory_order_relaxed));
    }
    /// A stream that was not stopped serves it.
    bool served() const noexcept;
    /// As ult::cancel() of every ULT whose home this is and that waits at the moment, where a
    /// cancel may end that wait. Those that run or are ready are left alone.
    /// Cost: a look at all ULTs of the process, and a system call for each of this pool's.
    void cancel_waiting() noexcept;

protected:
    /// For the destructor of each pool that can be made, as its first call: pop() still works. It
    /// ends what is left as said above, and stops a stream that still serves the pool, which is
    /// logged as an error; a stream whose own work destroys the pool gives up its scheduler. Only a
    /// primary stream cannot be stopped from another thread, and may use the pool still. A pool
    /// that does not call this must be empty() and without streams when it is destroyed.
    void drop_left() noexcept;
    /// The calling thread is the stream that has this pool as its main pool, or, with
    /// pool_access::one_stream, the one that serves it.
    bool on_own_stream() const noexcept;
    /// Wakes a serving stream when one is asleep. Call after the push is visible.
    /// Cost: one load for each serving stream.
    void notify() noexcept;
    /// The same in two steps, for pools that push under a lock: ask with the lock held, and wake
    /// afterwards, when this pool may be gone already. Null: nobody sleeps.
    detail::bell* claim_sleeper() noexcept;
    static void wake(detail::bell* claimed) noexcept;

private:
    friend class detail::left_behind;
    friend class detail::stream;
    friend class work_unit;
    friend class fifo_pool;

    /// A stream that serves the pool. Never freed before the pool is, as pushers walk the list.
    struct server {
        std::atomic<detail::stream*> who{nullptr};
        std::atomic<detail::bell*> bell{nullptr};
        std::atomic<server*> next{nullptr};
        std::atomic<bool> stays{false};  // it runs by itself, and is not about to stop
    };
    bool attach(detail::stream& who, detail::bell& bell, bool as_main);  // false: it is taken
    /// `who` is about to stop serving it.
    void prepare_to_detach(const detail::stream& who) noexcept;
    /// Another stream than `who`, which is about to stop, will run what is ready here.
    bool served_on_after(const detail::stream& who) const noexcept;
    bool served_by(const detail::stream& who) const noexcept;
    /// Another stream serves it now, or none.
    virtual void server_changed() noexcept {}
    void detach(const detail::stream& who) noexcept;
    /// In the child of a fork: `who` is a stream of its parent.
    void detach_in_child(const detail::stream& who) noexcept;
    /// What is here, or would come, only streams of the process that forked this one run.
    bool left_to_parent() const noexcept {
        return in_parent_.load(std::memory_order_relaxed) && !served();
    }
    bool served_only_by(const detail::stream& who) const noexcept {
        return access_ == pool_access::one_stream &&
               own_.who.load(std::memory_order_relaxed) == &who;
    }
    void count_ults(std::ptrdiff_t more) noexcept;
    void add_own_ults(std::ptrdiff_t more) noexcept {
        own_ults_.store(own_ults_.load(std::memory_order_relaxed) + more,
                        std::memory_order_relaxed);
    }

    const pool_access access_;
    server own_;                       // the only one with pool_access::one_stream
    std::atomic<bool> wanted_{false};  // a ULT was asked to move here
    std::atomic<bool> in_parent_{false};
    std::atomic<std::ptrdiff_t> other_ults_{0};
    // Written by own_ only, so on a line that others do not need.
    alignas(64) std::atomic<std::ptrdiff_t> own_ults_{0};
};

}  // namespace amalgam
