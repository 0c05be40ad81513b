#include <amalgam/core/status.hpp>
#include <amalgam/tasks/coroutine.hpp>
#include <amalgam/tasks/detail/coroutine_unit.hpp>

#include "tasks/dispatch/dispatcher.hpp"
#include "tasks/dispatch/ult_core.hpp"

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

void coroutine_unit::prepare(std::coroutine_handle<> who) noexcept {
    who_ = who;
    if (dispatcher* const here = dispatcher::current()) move_to(here->work().main_pool());
}

void coroutine_unit::prepare_in(pool& where, std::coroutine_handle<> who) noexcept {
    who_ = who;
    move_to(where);
}

void coroutine_unit::run_unit(work_unit& self) noexcept {
    const bool on_stream = dispatcher::current_in_line() != nullptr;  // else on a plain thread
    static_cast<coroutine_unit&>(self).who_.resume();
    if (on_stream) dispatcher::stay_in_parent();
}

}  // namespace amalgam::detail
