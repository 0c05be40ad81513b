#pragma once

#include <atomic>
#include <cstddef>

#include <unistd.h>

namespace amalgam::detail {

/// Counts the calls of fork() between the process that first called this and this one, from then
/// on. Throws std::bad_alloc.
void count_forks();
/// How many there were. Precondition: count_forks() has returned. Cost: a load.
unsigned forks_so_far() noexcept;

/// Functions that fork() calls: usually `before` takes locks, so that the child finds what they
/// guard consistent, and the other two release them. A static object that is never destroyed, in a
/// library that stays loaded as long as this one.
///
/// Unlike a local static around pthread_atfork(), this leaves no guard taken in a child of a parent
/// in which another thread was registering just then: the child would wait for that guard for ever.
/// Nor does it leave a lock taken that is registered while fork() is between its first handler and
/// the copy: what is registered then waits until the fork is over.
class fork_handlers {
public:
    using handler = void (*)();

    constexpr fork_handlers(handler before, handler in_parent, handler in_child) noexcept
        : before_(before), in_parent_(in_parent), in_child_(in_child) {}
    fork_handlers(const fork_handlers&) = delete;
    fork_handlers& operator=(const fork_handlers&) = delete;

    /// From now on fork() calls them: `before` of the last object to come first, the others of the
    /// first one first. Where others come meanwhile, all are called anew, as if that fork() had
    /// failed. Any thread, any number of times, also while it holds what other objects lock. False:
    /// there is no memory for it, or there are `most` others. Cost: a load, once it is done.
    bool watch() noexcept { return watched_.load(std::memory_order_acquire) || begin(); }
    static constexpr std::size_t most = 32;

private:
    bool begin() noexcept;

    friend struct fork_calls;
    const handler before_, in_parent_, in_child_;
    std::atomic<bool> watched_{false};
};

/// A member of what a child of fork() must leave alone, because it is its parent's.
class fork_check {
public:
    fork_check() noexcept : made_in_(::getpid()) {}

    /// This process is a child of the one that made this, however it came to be: also within a
    /// handler of fork()'s, and after _Fork() and clone(). Cost: a system call.
    bool is_in_child() const noexcept { return ::getpid() != made_in_; }

private:
    const ::pid_t made_in_;
};

}  // namespace amalgam::detail
