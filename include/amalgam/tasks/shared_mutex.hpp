#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/tasks/detail/stack_page.hpp>
#include <amalgam/tasks/detail/wait_list.hpp>
#include <amalgam/tasks/detail/wait_operation.hpp>
#include <amalgam/tasks/extension/deadline.hpp>

namespace amalgam {

/// One writer or many readers, among ULTs, plain threads and coroutines; works with
/// std::shared_lock and std::unique_lock. Fair: served in order of arrival. A reader does not
/// overtake a waiting writer, nor a writer a reader; consecutive readers enter together.
///
/// Threads: any; the locker must unlock. Not recursive: locking twice, even shared, may wait for a
///          writer that waits for the first lock. May be destroyed by the last to lock and unlock
///          it, even if the previous unlock() has not returned.
/// Failure: locking throws error{invalid} if it would have to wait inside a tasklet, timer callback
///          or poller.
/// Cost:    a short lock per call; for writing at most three instructions more, so that list_ults()
///          can tell who holds it.
class shared_mutex {
public:
    using time_point = std::chrono::steady_clock::time_point;  ///< Of deadlines.

    shared_mutex() = default;
    shared_mutex(const shared_mutex&) = delete;
    shared_mutex& operator=(const shared_mutex&) = delete;

    /// For writing: exclusive.
    void lock() {
        if (!try_lock()) lock_slow(access::write, time_point::max());
    }
    bool try_lock() noexcept {
        const std::lock_guard hold(waiting_);
        return waiting_.empty() && take(access::write, detail::stack_page());
    }
    /// False: the deadline passed first. Uses the clock of the caller's stream.
    bool try_lock_until(time_point deadline) {
        return try_lock() || lock_slow(access::write, deadline);
    }
    template <typename Rep, typename Period>
    bool try_lock_for(std::chrono::duration<Rep, Period> time) {
        return try_lock() || lock_slow(access::write, detail::deadline_after(time));
    }
    /// For coroutines: `co_await m.start_lock();`, then unlock() as usual.
    auto start_lock() noexcept { return detail::wait_operation(*this, access::write); }
    void unlock() noexcept;

    /// For reading: shared with other readers.
    void lock_shared() {
        if (!try_lock_shared()) lock_slow(access::read, time_point::max());
    }
    /// False: a writer holds it or waits for it.
    bool try_lock_shared() noexcept {
        const std::lock_guard hold(waiting_);
        return waiting_.empty() && take(access::read, 0);
    }
    /// As try_lock_shared(), but waits until `deadline`.
    bool try_lock_shared_until(time_point deadline) {
        return try_lock_shared() || lock_slow(access::read, deadline);
    }
    template <typename Rep, typename Period>
    bool try_lock_shared_for(std::chrono::duration<Rep, Period> time) {
        return try_lock_shared() || lock_slow(access::read, detail::deadline_after(time));
    }
    /// For co_await, as start_lock() for readers.
    auto start_lock_shared() noexcept { return detail::wait_operation(*this, access::read); }
    void unlock_shared() noexcept;

private:
    enum class access : std::uintptr_t { read, write };
    friend class detail::ult_registry;  // shows who holds it
    template <typename, typename...>
    friend class detail::wait_operation;

    bool enlist(detail::wait_node& me, access how) noexcept;
    bool lock_slow(access how, time_point deadline);

    // Needs the list's lock. `by`: where the writer's stack is, see detail::stack_page().
    bool take(access how, std::uint32_t by) noexcept {
        if (writing_ || (how == access::write && readers_ != 0)) return false;
        if (how == access::write) {
            writing_ = true;
            written_at_ = by;
        } else {
            ++readers_;
        }
        return true;
    }
    detail::wait_node* serve() noexcept;

    detail::wait_list waiting_;
    std::size_t readers_ = 0;
    bool writing_ = false;
    std::uint32_t written_at_ = 0;  // In what would be padding.
};

}  // namespace amalgam
