#pragma once

#include <atomic>
#include <cstdint>

namespace amalgam {

class execution_stream;
class pool;
/// What a unit is.
enum class unit_kind : std::uint8_t {
    ult,      ///< A thread in user space, with a stack of its own.
    tasklet,  ///< Runs to its end on the stack of the stream.
    other     ///< A coroutine, a posted scheduler, or the user's own.
};

/// Something a stream can run: a ready ULT, a tasklet, a scheduler. Pools link units intrusively,
/// so queueing never allocates.
///
/// Owner:   the creator; must live until its run function has been entered.
/// Threads: in at most one pool at a time.
class work_unit {
public:
    /// Runs the unit on the stream that popped it, on the stream's own stack, so it must not wait.
    /// May destroy the unit.
    using run_function = void (*)(work_unit&) noexcept;

    explicit work_unit(run_function how) noexcept : run_(how) {}
    work_unit(const work_unit&) = delete;
    work_unit& operator=(const work_unit&) = delete;

    /// Runs it, as its run_function does. For schedulers.
    void run() noexcept { run_(*this); }
    /// Which kind of unit this is.
    unit_kind kind() const noexcept;
    /// Tells one kind of unit from others.
    bool runs_by(run_function how) const noexcept { return run_ == how; }

    /// The pool it goes to when ready. Null: none; the stream or plain thread that makes
    /// it ready runs it.
    [[gnu::always_inline]] pool* home() const noexcept {
        return home_.load(std::memory_order_relaxed);
    }
    /// Makes `where` its home from now on. Call only while it is in no pool: by its creator, or by
    /// a scheduler that popped it.
    void move_to(pool& where) noexcept;
    /// Pushes it to its home pool.
    void make_ready() noexcept;

    /// For pools that order by priority: higher runs sooner. Must not change while a pool holds the
    /// unit.
    std::uint8_t priority = 0;

    // Used only by the pool that holds it.
    work_unit* next_in_pool = nullptr;  ///< The next in the list of the pool.
    work_unit* prev_in_pool = nullptr;  ///< The one before it.
    /// The list; null: none, or a pool without lists.
    std::atomic<const void*> listed_in{nullptr};

protected:
    ~work_unit() = default;
    /// Sets its home, without what move_to() counts.
    void set_home(pool* where) noexcept { home_.store(where, std::memory_order_relaxed); }

private:
    run_function run_;
    std::atomic<pool*> home_{nullptr};
};

}  // namespace amalgam
