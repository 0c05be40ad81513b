#include <atomic>
#include <cstddef>
#include <mutex>
#include <new>

#include <pthread.h>

#include <amalgam/core/detail/forks.hpp>

namespace amalgam::detail {

namespace {

/// In the order of their registration; never taken out. Who adds one holds `registering`.
constinit fork_handlers* in_order[fork_handlers::most]{};
constinit std::atomic<std::size_t> registered{0};

/// Also held by a thread that forks, once it has called all: what another one registers before the
/// copy of the process would not have been called, and its locks would stay taken in the child.
/// Taken last of all there, as those who register may hold what the handlers lock.
constinit std::mutex registering;

/// In a fork() of this thread that goes on, one more than were called before it; else 0. Two
/// threads that register our calls at once may have each fork() call us twice.
constinit thread_local std::size_t called_and_one = 0;

constinit std::atomic<bool> is_called{false};
constinit std::atomic<unsigned> forks{0};

}  // namespace

struct fork_calls {
    static void before() noexcept {
        if (called_and_one != 0) return;
        std::size_t all = registered.load(std::memory_order_acquire);
        for (;;) {
            for (std::size_t i = all; i-- > 0;)
                call(i, &fork_handlers::before_);
            registering.lock();
            const std::size_t now = registered.load(std::memory_order_relaxed);
            if (now == all) break;
            registering.unlock();
            // Not only the new ones: locks are taken in one order.
            call_all(all, &fork_handlers::in_parent_);
            all = now;
        }
        called_and_one = all + 1;
    }
    static void in_parent() noexcept { after(&fork_handlers::in_parent_); }
    static void in_child() noexcept { after(&fork_handlers::in_child_); }

private:
    using member = const fork_handlers::handler fork_handlers::*;

    static void after(member which) noexcept {
        if (called_and_one == 0) return;
        call_all(called_and_one - 1, which);
        called_and_one = 0;
        registering.unlock();
    }
    static void call_all(std::size_t number, member which) noexcept {
        for (std::size_t i = 0; i < number; ++i)
            call(i, which);
    }
    static void call(std::size_t number, member which) noexcept {
        const fork_handlers& one = *in_order[number];
        if (one.*which != nullptr) (one.*which)();
    }
};

namespace {

bool register_calls() noexcept {
    if (is_called.load(std::memory_order_acquire)) return true;
    if (::pthread_atfork(fork_calls::before, fork_calls::in_parent, fork_calls::in_child) != 0)
        return false;
    is_called.store(true, std::memory_order_release);
    return true;
}

/// Most programs have one thread then, so that no fork() goes on meanwhile.
[[maybe_unused]] const bool is_called_from_load_on = register_calls();

}  // namespace

bool fork_handlers::begin() noexcept {
    if (!register_calls()) return false;
    std::unique_lock hold(registering, std::defer_lock);
    // Within a handler of fork(), this thread has it.
    if (called_and_one == 0) hold.lock();
    if (watched_.load(std::memory_order_relaxed)) return true;
    const std::size_t number = registered.load(std::memory_order_relaxed);
    if (number == most) return false;
    in_order[number] = this;
    registered.store(number + 1, std::memory_order_release);
    watched_.store(true, std::memory_order_release);
    return true;
}

namespace {

constinit fork_handlers counting(nullptr, nullptr,
                                 [] { forks.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

void count_forks() {
    if (!counting.watch()) throw std::bad_alloc();
}

unsigned forks_so_far() noexcept {
    return forks.load(std::memory_order_relaxed);
}

}  // namespace amalgam::detail
