#include <atomic>
#include <cstddef>
#include <new>

#include <pthread.h>

#include <amalgam/core/detail/forks.hpp>

namespace amalgam::detail {

namespace {

/// In the order of their registration; never taken out.
constinit std::atomic<fork_handlers*> in_order[fork_handlers::most]{};

/// How many were called before the fork() of this thread that goes on. Two threads that register at
/// once, or a child and its parent, may have each fork() call us twice.
constinit thread_local std::size_t called_before = 0;

constinit std::atomic<bool> registered{false};
constinit std::atomic<unsigned> forks{0};

}  // namespace

struct fork_calls {
    static void before() noexcept {
        if (called_before != 0) return;
        while (called_before < fork_handlers::most &&
               in_order[called_before].load(std::memory_order_acquire))
            ++called_before;
        for (std::size_t i = called_before; i-- > 0;)
            call(i, &fork_handlers::before_);
    }
    static void in_parent() noexcept { after(&fork_handlers::in_parent_); }
    static void in_child() noexcept { after(&fork_handlers::in_child_); }

private:
    using member = const fork_handlers::handler fork_handlers::*;

    static void after(member which) noexcept {
        for (std::size_t i = 0; i < called_before; ++i)
            call(i, which);
        called_before = 0;
    }
    static void call(std::size_t number, member which) noexcept {
        const fork_handlers& one = *in_order[number].load(std::memory_order_relaxed);
        if (one.*which != nullptr) (one.*which)();
    }
};

namespace {

bool register_calls() noexcept {
    if (registered.load(std::memory_order_acquire)) return true;
    if (::pthread_atfork(fork_calls::before, fork_calls::in_parent, fork_calls::in_child) != 0)
        return false;
    registered.store(true, std::memory_order_release);
    return true;
}

/// Most programs have one thread then, so that no fork() goes on meanwhile.
[[maybe_unused]] const bool registered_at_load = register_calls();

}  // namespace

bool fork_handlers::begin() noexcept {
    if (!register_calls()) return false;
    for (std::atomic<fork_handlers*>& each : in_order) {
        fork_handlers* there = nullptr;
        if (each.compare_exchange_strong(there, this, std::memory_order_acq_rel) || there == this) {
            watched_.store(true, std::memory_order_release);
            return true;
        }
    }
    return false;
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
