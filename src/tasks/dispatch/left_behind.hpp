#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <string_view>

#include <amalgam/tasks/pool.hpp>
#include <amalgam/tasks/work_unit.hpp>

namespace amalgam::detail {

struct join_state;
class ult_core;

/// Handles units left in a pool that is destroyed, queued there or parked with it as their home:
/// they never run again, and joining them throws error{canceled}.
///
/// A ULT that has begun keeps its stack and everything on it forever, because a lock, a timer or a
/// promise may refer to its waiter. This class takes its permit, so a later unpark has no effect.
/// Its home becomes a pool that is never destroyed and accepts nothing. A unit that has not begun
/// is freed with its body, by its joiner, or here if there will be none.
///
/// Threads: the one that destroys the pool. Others may unpark the ULTs meanwhile.
class left_behind {
public:
    /// Ends everything left in `ending`, which can still pop(), and logs one warning. `stream`: the
    /// one whose own pool it is, or empty.
    static void end_all(pool& ending, std::string_view stream) noexcept;
    /// The same without queued units: `ending` can no longer pop().
    static void end_homeless(pool& ending) noexcept;
    /// See pool::cancel_waiting(); runs before the above.
    static void cancel_waiting(const pool& of) noexcept;
    /// Records that some ULT has `in` as its wanted_home.
    static void expect_ult(pool& in) noexcept { in.wanted_.store(true, std::memory_order_relaxed); }
    /// Whether only streams of the process that forked this one could run what is in `home`. Null
    /// means no pool.
    static bool is_left_to_parent(const pool* home) noexcept {
        return home != nullptr && home->left_to_parent();
    }
    /// Whether `home` is the pool of ULTs that never run again.
    static bool keeps(const pool& home) noexcept;
    /// A ULT that was running when its pool was destroyed has left its stream.
    static void end_late(ult_core& who) noexcept;

private:
    left_behind(pool& of, std::string_view stream) noexcept : of_(of), stream_(stream) {}
    ~left_behind();
    left_behind(const left_behind&) = delete;
    left_behind& operator=(const left_behind&) = delete;

    enum class on_its_way : bool { skip, take };
    bool has_work_elsewhere() const noexcept {
        return of_.ults() != 0 || of_.wanted_.load(std::memory_order_relaxed);
    }
    bool take_queued() noexcept;  // false: nothing was queued
    // False: skipped ULTs that were unparked and are about to be pushed.
    bool take_from_registry(on_its_way what) noexcept;
    void take(ult_core& who) noexcept;
    void append(work_unit& unit) noexcept;
    void end_taken() noexcept;
    static join_state& state_of(work_unit& unit) noexcept;
    static void end(work_unit& unit) noexcept;
    void add_name(const ult_core& who) noexcept;

    pool& of_;
    const std::string_view stream_;
    work_unit* first_ = nullptr;  // linked as in a pool
    work_unit* last_ = nullptr;
    std::size_t ults_ = 0;
    std::size_t tasklets_ = 0;
    std::size_t others_ = 0;
    std::size_t expected_ = 0;
    std::string names_;
};

/// For join(): "its pool was destroyed …".
std::exception_ptr pool_destroyed(const char* what) noexcept;

// In tasklet.cpp, which knows their type.
bool is_tasklet(const work_unit& unit) noexcept;
join_state& state_of_tasklet(work_unit& unit) noexcept;
void end_left_tasklet(work_unit& unit) noexcept;

}  // namespace amalgam::detail
