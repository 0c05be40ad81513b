#include "tasks/forks.hpp"

#include <cstdlib>
#include <new>
#include <string_view>

#include <pthread.h>
#include <unistd.h>

#include <amalgam/tasks/detail/local.hpp>
#include <amalgam/tasks/detail/returned_child.hpp>

#include "tasks/bell.hpp"
#include "tasks/block_cache.hpp"
#include "tasks/stack_memory.hpp"
#include "tasks/stream.hpp"
#include "tasks/timer_heap.hpp"
#include "tasks/ult_core.hpp"
#include "tasks/ult_registry.hpp"

namespace amalgam::detail {

namespace {

constinit std::mutex served_pools;

template <typename What>
void for_each_lock(What what) {
    what(served_pools);
    ult_registry::for_each_lock(what);
    timer_heap::for_each_lock(what);
    what(bell::shelf_lock());
    what(kept_stacks_lock());
    what(ult_core::stack_depot.lock());
    block_cache::for_each_lock(what);
}

void before() noexcept {
    for_each_lock([](auto& each) { each.lock(); });
}

void in_parent() noexcept {
    for_each_lock([](auto& each) { each.unlock(); });
}

void in_child() noexcept {
    void* const local = task_local();  // A ULT's stays its own, as it goes on as the thread.
    stream* const here = stream::set_current(nullptr);
    task_local() = local;
    if (here != nullptr && here->running() != nullptr) here->running()->end_with_child();
    for (stream* each : ult_registry::streams_locked())
        each->is_forked();
    in_parent();
}

}  // namespace

std::mutex& lock_of_served() noexcept {
    return served_pools;
}

void end_returned_child() noexcept {
    constexpr std::string_view why =
        "amalgam: a child of fork() came back from a function that its parent's stream called (a "
        "ULT, tasklet, coroutine, handler, continuation, interceptor, timer or poller), and is "
        "ended, as it has none of its parent's streams: call exec() or _exit() in the child before "
        "that function returns\n";
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, why.data(), why.size());
    ::_exit(EXIT_FAILURE);
}

void watch_forks() {
    static const bool watching = [] {
        if (::pthread_atfork(before, in_parent, in_child) != 0) throw std::bad_alloc();
        return true;
    }();
    static_cast<void>(watching);
}

}  // namespace amalgam::detail
