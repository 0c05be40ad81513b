#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <amalgam/tasks/extension/deadline.hpp>
#include <amalgam/tasks/work_unit.hpp>

namespace amalgam {

namespace detail {
class dispatcher;
class left_behind;
class ready_work;
class served_pools;
class stream_loop;
struct bell;
}  // namespace detail

/// How many streams may serve a pool. Any thread may push to either kind.
enum class pool_access {
    one_stream,  ///< Pops without a lock; a ULT stays on its stream.
    any_stream   ///< Work goes to whichever stream is free.
};

/// Any function `void(const work_unit&)`, for pool::visit(). Does not own it.
class unit_visitor {
public:
    template <typename Function>
    unit_visitor(Function&& see) noexcept
        : see_(&see), call_([](const void* what, const work_unit& unit) {
              using called = std::remove_reference_t<Function>;
              (*static_cast<called*>(const_cast<void*>(what)))(unit);
          }) {}
    void operator()(const work_unit& unit) const { call_(see_, unit); }

private:
    const void* see_;
    void (*call_)(const void*, const work_unit&);
};

/// Where ready work waits for streams. To write your own, derive from it, call notify() after each
/// push from outside the serving stream, and call drop_left() in the destructor.
///
/// Owner:   the user; the stream for its main_pool(). Must outlive the streams that serve it, and
///          should outlive every ULT created in it: destroy it once ults() is 0 and it is empty().
/// Failure: units left in a destroyed pool never run again. A log warning counts them and names
///          some. join() of such a ULT or tasklet throws error{canceled}. Objects on the stack of a
///          started ULT are not destroyed, and the stack is never freed, since others may still
///          refer to it; unparking it later does nothing. The body of a unit that never started is
///          destroyed by join(), or at once if detached. Other kinds of unit are forgotten.
/// Threads: push() from any thread; pop(), requeue() and remove() only from a serving stream.
class pool {
public:
    using time_point = std::chrono::steady_clock::time_point;  ///< Of pop_until().

    explicit pool(pool_access access = pool_access::one_stream) noexcept : access_(access) {}
    pool(const pool&) = delete;
    pool& operator=(const pool&) = delete;
    virtual ~pool();

    /// Adds a ready unit, from any thread. Never allocates.
    virtual void push(work_unit& unit) noexcept = 0;
    /// As push(), but whatever the pool's order, the unit goes before the first waiting unit of
    /// lower work_unit::priority. By default it is just pushed.
    virtual void push_by_priority(work_unit& unit) noexcept { push(unit); }
    /// Takes back a unit that yielded. Whatever the pool's order, the other units go first.
    virtual void requeue(work_unit& unit) noexcept { push(unit); }
    /// Takes the next unit, or null. Called only by a serving stream.
    virtual work_unit* pop() noexcept = 0;
    /// As push() and pop(), for several units at once: the same order, but the pools of Amalgam
    /// look at locks, inboxes and sleeping streams once. pop_many() returns how many it took, at
    /// most into.size(). By default one by one.
    virtual void push_many(std::span<work_unit* const> units) noexcept;
    virtual std::size_t pop_many(std::span<work_unit*> into) noexcept;
    /// As pop(), but waits for a unit. Null: `deadline`, on the stream's clock, has come. In the
    /// run() of a looping_scheduler the stream does meanwhile what scheduler_loop::idle() does, and
    /// null may also mean that should_stop() holds; elsewhere on a stream's own stack, or on a
    /// driven one, or for a pool that it does not serve, it does not wait. A ULT, and a plain
    /// thread with pool_access::any_stream, look every 50 us. Throws error{invalid} where pop() is
    /// not allowed.
    work_unit* pop_until(time_point deadline);
    template <typename Rep, typename Period>
    work_unit* pop_for(std::chrono::duration<Rep, Period> time) {
        return pop_until(detail::deadline_after(time));
    }
    /// Shows the queued units, in the order of pop() unless the pool depends on who pops. `see`
    /// must not use the pool, and must not keep the unit. Called where pop() may be, else throws
    /// error{invalid}; what `see` throws passes through. By default it pops all and pushes them
    /// back. The pools of Amalgam hold their lock meanwhile.
    virtual void visit(unit_visitor see);

    /// Takes out this unit, whatever its turn. False: it is not queued here, or the pool cannot do
    /// this.
    virtual bool remove(work_unit&) noexcept { return false; }
    /// Whether there is no unit to pop. A stream checks this after announcing that it will sleep
    /// and before sleeping. It must therefore see every push whose notify() found the stream awake:
    /// use seq_cst both for the write in push() and the read here, or read under the lock that
    /// push() takes.
    virtual bool empty() const noexcept = 0;
    /// Number of queued units; exact only while nobody pushes or pops.
    virtual std::size_t size() const noexcept = 0;
    /// Number of units taken out so far, to run them: a ULT counts once for each of its turns. A
    /// batch of units that runs now may not be counted yet. By default 0: not counted.
    virtual std::uint64_t taken() const noexcept { return 0; }

    /// Who may push and pop, as given when it was made.
    pool_access access() const noexcept { return access_; }
    /// Number of ULTs whose home is this pool: ready, running and parked. Exact only while none
    /// starts, ends or moves.
    std::size_t ults() const noexcept {
        return static_cast<std::size_t>(own_ults_.load(std::memory_order_relaxed) +
                                        other_ults_.load(std::memory_order_relaxed));
    }
    /// Whether a stream that has not been stopped serves it.
    bool served() const noexcept;
    /// Calls ult::cancel() for every ULT with this home that is in a cancelable wait. Running and
    /// ready ULTs are left alone.
    /// Cost: visits all ULTs of the process; one system call for each ULT of this pool.
    void cancel_waiting() noexcept;

protected:
    /// Must be the first call in the destructor of every concrete pool, while pop() still works. It
    /// ends the units that are left, as described above. It also stops a stream that still serves
    /// the pool and logs that as an error; if the stream's own work destroys the pool, the stream
    /// gives up its scheduler. A primary stream cannot be stopped from another thread and may still
    /// use the pool. A pool that does not call this must be empty() and unserved when it is
    /// destroyed.
    void drop_left() noexcept;
    /// Whether the calling thread is the stream whose main pool this is, or, with
    /// pool_access::one_stream, the stream that serves it.
    bool on_own_stream() const noexcept;
    /// Wakes a serving stream if one is asleep. Call after the push is visible. Cost: one load per
    /// serving stream.
    void notify() noexcept;
    /// Throws error{invalid} where the caller must not pop: `act` is what it wanted to do.
    void check_may_pop(const char* act) const;
    /// notify() in two steps, for pools that push under a lock: claim with the lock held, wake
    /// after releasing it, when this pool may already be gone. Null: no stream sleeps.
    detail::bell* claim_sleeper() noexcept;
    /// False: if on_own_stream(), nobody else may sleep who would run what is pushed.
    bool has_other_servers() const noexcept {
        return own_.next.load(std::memory_order_relaxed) != nullptr;
    }
    /// The second step of claim_sleeper(); null does nothing.
    static void wake(detail::bell* claimed) noexcept;
    /// In a child of fork(): only streams of the parent process would run what is pushed here.
    bool left_to_parent() const noexcept {
        return in_parent_.load(std::memory_order_relaxed) && !served();
    }

private:
    friend class detail::ready_work;    // counts ULTs, asks who serves it
    friend class detail::served_pools;  // attaches and detaches a stream
    friend class detail::left_behind;   // ends what is left in it
    friend class work_unit;             // counts ULTs that move
    friend class fifo_pool;             // reads the bell of its server

    /// A stream that serves the pool. Freed only with the pool, because pushers walk the list.
    struct server {
        std::atomic<detail::dispatcher*> who{nullptr};
        std::atomic<detail::bell*> bell{nullptr};
        std::atomic<server*> next{nullptr};
        std::atomic<bool> stays{false};  // runs on its own thread and is not about to stop
    };
    /// `stays`: it will not be driven or stop. False: taken by another.
    bool attach(detail::dispatcher& who, detail::bell& bell, bool stays, bool as_main);
    /// `who` is about to stop serving the pool.
    void prepare_to_detach(const detail::dispatcher& who) noexcept;
    /// Whether a stream other than `who`, which is about to stop, will run what is ready here.
    bool served_on_after(const detail::dispatcher& who) const noexcept;
    bool served_by(const detail::dispatcher& who) const noexcept;
    /// Called when another stream, or none, now serves the pool.
    virtual void server_changed() noexcept {}
    void detach(const detail::dispatcher& who) noexcept;
    /// In a fork() child: `who` is a stream of the parent.
    void detach_in_child(const detail::dispatcher& who) noexcept;
    bool served_only_by(const detail::dispatcher& who) const noexcept {
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
    // Written only by own_, so on its own cache line.
    alignas(64) std::atomic<std::ptrdiff_t> own_ults_{0};
};

}  // namespace amalgam
