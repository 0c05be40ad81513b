#include <memory>
#include <new>

#include <amalgam/tasks/extension/guest.hpp>
#include <amalgam/tasks/extension/small_block.hpp>

#include "runtime.hpp"
#include "tool.hpp"

// The life of a tasklet, which has no stack: its stream's loop calls its function. It is no tasklet
// of Amalgam, since pools of the program's functions hold it by its handle.

namespace amalgam::argobots {

void tasklet_unit::run_unit(work_unit& unit) noexcept {
    tasklet_thread& who = tasklet_thread::of(unit);
    void*& self_of_thread = detail::guest();  // which is the same at the end
    self_of_thread = &who;
    call_function(who);
    tell_tool(who, ABT_TOOL_EVENT_THREAD_FINISH);
    if (!who.named) destroy_values(who);
    self_of_thread = nullptr;
    if (!who.named) return free_thread(who);
    who.state.store(ABT_THREAD_STATE_TERMINATED, std::memory_order_release);
    who.tell_end();
}

tasklet_thread& tasklet_thread::of(work_unit& unit) noexcept {
    return static_cast<tasklet_thread&>(*static_cast<tasklet_unit&>(unit).of);
}

tasklet_thread& tasklet_thread::make() {
    auto* const made = ::new (detail::allocate_block(sizeof(tasklet_thread))) tasklet_thread;
    made->where = kept_in::block;
    made->unit_of_stream.of = made;
    made->work = &made->unit_of_stream;
    return *made;
}

void tasklet_thread::free(tasklet_thread& which) noexcept {
    std::destroy_at(&which);
    detail::free_block(&which, sizeof which);
}

void tasklet_thread::wait_for_end() {
    if (end.load(std::memory_order_acquire) != ended_mark) runtime::refuse_in_child();
    waiter me;
    me.waits_for("join");
    std::uintptr_t was = 0;
    if (end.compare_exchange_strong(was, reinterpret_cast<std::uintptr_t>(&me),
                                    std::memory_order_acq_rel, std::memory_order_acquire))
        me.park();
}

void tasklet_thread::tell_end() noexcept {
    const std::uintptr_t joins_it = end.exchange(ended_mark, std::memory_order_acq_rel);
    if (joins_it != 0) reinterpret_cast<waiter*>(joins_it)->unpark();
}

void tasklet_thread::end_left(tasklet_thread& which) noexcept {
    which.named ? which.tell_end() : free_thread(which);
}

}  // namespace amalgam::argobots
