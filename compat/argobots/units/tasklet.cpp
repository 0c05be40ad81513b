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
    void*& self_of_thread = detail::guest();  // which is the same at the end
    ABT_thread_opaque* who = &tasklet_thread::of(unit);
    ABT_xstream_opaque& here = *who->stream.load(std::memory_order_relaxed);
    do {
        self_of_thread = who;
        call_function(*who);
        tell_tool(*who, ABT_TOOL_EVENT_THREAD_FINISH);
        if (!who->named) destroy_values(*who);
        self_of_thread = nullptr;
        end_thread(*who);
        who = here.next_in_place(true);
    } while (who != nullptr);
}

tasklet_thread& tasklet_thread::of(work_unit& unit) noexcept {
    return static_cast<tasklet_thread&>(*static_cast<tasklet_unit&>(unit).of);
}

tasklet_thread& tasklet_thread::make() {
    auto* const made = ::new (detail::allocate_block(sizeof(tasklet_thread))) tasklet_thread;
    made->unit_of_stream.of = made;
    made->work = &made->unit_of_stream;
    return *made;
}

void tasklet_thread::free(tasklet_thread& which) noexcept {
    std::destroy_at(&which);
    detail::free_block(&which, sizeof which);
}

}  // namespace amalgam::argobots
