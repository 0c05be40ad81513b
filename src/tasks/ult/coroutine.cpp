#include <amalgam/core/status.hpp>
#include <amalgam/tasks/coroutine.hpp>

#include "tasks/ult/core.hpp"

namespace amalgam::detail {

task<void> task_promise<void>::get_return_object() noexcept {
    return task<void>(*this);
}

void refuse_empty_task() {
    throw error(errc::invalid,
                "this task is empty: it was awaited already, or moved from; await a task once and "
                "keep its result");
}

void check_served(const pool& where) {
    if (!where.served()) refuse_unserved(where);
}

}  // namespace amalgam::detail
