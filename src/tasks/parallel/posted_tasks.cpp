#include <amalgam/core/status.hpp>
#include <amalgam/tasks/detail/posted_tasks.hpp>
#include <amalgam/tasks/extension/exit_ult.hpp>

namespace amalgam::detail {

std::exception_ptr exception_to_pass_on() noexcept {
    try {
        throw;
    } catch (const exit_ult&) {
        return std::make_exception_ptr(
            error(errc::invalid,
                  "a function that runs in parallel called this_task::exit(), which would end a "
                  "ULT that is not its own: return from it instead"));
    } catch (...) {
        return std::current_exception();
    }
}

std::exception_ptr left_in_pool() noexcept {
    return std::make_exception_ptr(
        error(errc::canceled,
              "parallel work was left out, as the pool that held it was destroyed before it began; "
              "keep the pool, or the team, and its streams, until the work has returned"));
}

void posted_tasks::fail() noexcept {
    stop();
    if (!failed_.exchange(true, std::memory_order_relaxed)) failure_ = exception_to_pass_on();
}

void posted_tasks::leave(std::size_t number) noexcept {
    // Acquire and release: the last one publishes what all others wrote.
    if (open_.fetch_sub(number, std::memory_order_acq_rel) == number) caller_.unpark();
}

void posted_tasks::wait() {
    bool canceled = false;
    if (open_.fetch_sub(1, std::memory_order_acq_rel) != 1) {
        caller_.waits_for("parallel tasks");
        caller_.allow_cancel();
        canceled = !caller_.park_until(waiter::time_point::max());
        if (canceled) {
            stop();
            caller_.park();
        }
    }
    if (failure_) std::rethrow_exception(failure_);
    if (!canceled) return;
    throw_if_canceled();
    throw error(errc::canceled, "this ULT was canceled while it waited for parallel tasks");
}

}  // namespace amalgam::detail
