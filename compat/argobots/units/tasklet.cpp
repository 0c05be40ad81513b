#include <amalgam/tasks/extension/guest.hpp>

#include "runtime.hpp"
#include "tool.hpp"

// The life of a tasklet, which has no stack: its stream's loop calls its function. It is no tasklet
// of Amalgam, since pools of the program's functions hold it by its handle.

namespace amalgam::argobots {

void run_tasklets(ABT_thread_opaque& first) noexcept {
    void*& self_of_thread = detail::guest();  // which is the same at the end
    ABT_xstream_opaque& here = *first.stream.load(std::memory_order_relaxed);
    ABT_thread_opaque* now = &first;
    spare_descriptor spare;
    do {
        self_of_thread = now;
        call_function(*now);
        tell_tool(*now, ABT_TOOL_EVENT_THREAD_FINISH);
        if (!now->named && now->rare.load(std::memory_order_acquire) != nullptr)
            destroy_values(*now);
        self_of_thread = nullptr;
        now->named ? end_thread(*now) : spare.take(*now);
        now = here.next_in_place(true, spare.memory());
    } while (now != nullptr);
}

}  // namespace amalgam::argobots
