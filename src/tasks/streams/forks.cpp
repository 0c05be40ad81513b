#include "tasks/streams/forks.hpp"

#include <new>

#include <amalgam/core/detail/forks.hpp>
#include <amalgam/tasks/extension/local.hpp>

#include "tasks/dispatch/block_cache.hpp"
#include "tasks/dispatch/dispatcher.hpp"
#include "tasks/dispatch/hooks.hpp"
#include "tasks/dispatch/registry.hpp"
#include "tasks/dispatch/ult_core.hpp"
#include "tasks/idle/bell.hpp"
#include "tasks/stacks/memory.hpp"
#include "tasks/streams/ranks.hpp"
#include "tasks/streams/stream.hpp"
#include "tasks/streams/timer_heap.hpp"

namespace amalgam::detail {

namespace {

template <typename What>
void for_each_lock(What what) {
    what(served_pools::lock());
    what(ranks::lock());
    what(hooks::lock());
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
    void* const local = task_local();  // Keeps a ULT's value, as it continues as the thread.
    dispatcher* const here = dispatcher::set_current(nullptr);
    task_local() = local;
    if (here != nullptr && here->running() != nullptr) here->running()->end_with_child();
    for (dispatcher* each : ult_registry::streams_locked())
        each->of().is_forked();
    ranks::forget_all();
    hooks::forget_others_in_child();
    in_parent();
}

constinit fork_handlers stream_handlers(before, in_parent, in_child);

}  // namespace

void watch_forks() {
    if (!stream_handlers.watch()) throw std::bad_alloc();
}

}  // namespace amalgam::detail
