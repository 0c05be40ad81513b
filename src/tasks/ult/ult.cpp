#include <cerrno>
#include <thread>

#include <fmt/format.h>

#include <amalgam/core/log.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/tasks/ult.hpp>

#include "tasks/dispatch/dispatcher.hpp"
#include "tasks/dispatch/hooks.hpp"
#include "tasks/dispatch/left_behind.hpp"
#include "tasks/dispatch/registry.hpp"
#include "tasks/dispatch/ult_core.hpp"

namespace amalgam {

using detail::dispatcher;
using detail::ult_core;

void ult::end() noexcept {
    // Belongs to the parent of a fork: it never ends here.
    if (!core_->is_finished() && detail::left_behind::is_left_to_parent(core_->home())) return;
    detail::join_or_detach(*this, "a ULT's handle was destroyed without join()");
}

[[gnu::noinline]] void ult::join() {
    dispatcher* const here = dispatcher::current_in_line();
    if (here == nullptr || core_ == nullptr || !core_->is_finished() || core_->failed)
        return join_slowly();
    ult_core::give_back(*std::exchange(core_, nullptr), detail::stock_of(here));
}

[[gnu::noinline]] void ult::join_slowly() {
    dispatcher* here = dispatcher::current();
    if (core_ == nullptr || (here != nullptr && here->running() == core_))
        detail::refuse_join(core_, here);
    if (!core_->is_finished()) {
        detail::refuse_to_join(core_->home());
        if (here != nullptr) here = here->join_here(*core_);
        if (here == nullptr) {
            core_->wait(false);
            here = dispatcher::current();
        }
    }
    ult_core& core = *std::exchange(core_, nullptr);
    if (!core.failed) return ult_core::give_back(core, detail::stock_of(here));
    const std::exception_ptr failed = std::exchange(core.failed, nullptr);
    ult_core::give_back(core, detail::stock_of(here));
    std::rethrow_exception(failed);
}

void ult::detach() {
    if (core_ == nullptr) detail::refuse_empty_handle("ult", "detach");
    ult_core& core = *std::exchange(core_, nullptr);
    dispatcher* const here = dispatcher::current();
    if (!core.detach(here != nullptr && here->work().owns(core.home()))) return;
    if (core.failed) core.log_lost_exception();
    ult_core::give_back(core, detail::stock_of(here));
}

void ult::cancel() {
    if (core_ == nullptr) detail::refuse_empty_handle("ult", "cancel");
    if (detail::hooks::telling()) {
        throw error(errc::invalid,
                    "a ULT cannot be canceled in the function of a task_hook: let a ULT or thread "
                    "do it");
    }
    if (detail::hooks::any()) detail::hooks::tell(task_event::canceled, *core_);
    detail::cancel_ult(*core_);
}

void detail::cancel_ult(ult_core& core) noexcept {
    core.requests.fetch_or(ult_core::asked_to_end, std::memory_order_seq_cst);
    work_unit* expired = nullptr;
    {
        ult_core* const one = &core;
        const ult_registry::hold still({&one, 1});
        if (still.running(core) != nullptr) return;  // it sees the request at its next wait
        // Else it has met the request at an earlier wait, and this one is not to end.
        if ((core.requests.load(std::memory_order_relaxed) & ult_core::asked_to_end) == 0) return;
        waiter* const at = core.waiting_on.load(std::memory_order_relaxed);
        if (at == nullptr || !at->cancelable_ || !core.may_be_canceled()) return;
        expired = at->expire_only();
    }
    if (expired != nullptr) waiter::push_expired(*expired);
}

detail::dispatcher& detail::stream_of_ult(const char* what) {
    dispatcher* const here = dispatcher::current();
    if (here != nullptr && here->running() != nullptr) return *here;
    throw error(
        errc::invalid,
        fmt::format("only a ULT can {}, but this is a {}; use spawn() or post() to run it as a ULT",
                    what,
                    here == nullptr ? "plain thread"
                                    : "tasklet, timer callback or poller, which runs on "
                                      "the stream's own stack"));
}

ult_core& detail::running_that_may_exit() {
    const dispatcher& here = stream_of_ult("exit");
    if (!here.is_thread(*here.running())) return *here.running();
    throw error(errc::invalid,
                "the ULT of a primary stream is the thread itself: return from the thread's "
                "function instead");
}

void detail::refuse_join(const ult_core* of, const dispatcher* here) {
    if (of == nullptr) refuse_empty_handle("ult", "join");
    if (here == nullptr || here->running() != of) return;
    throw error(errc::invalid, "a ULT cannot join itself: let another ULT or thread join it");
}

namespace this_task {

using detail::stream_of_ult;

bool in_ult() noexcept {
    const dispatcher* here = dispatcher::current();
    return here != nullptr && here->running() != nullptr;
}

void yield() {
    dispatcher* const here = dispatcher::current();
    if (here == nullptr) return std::this_thread::yield();
    ult_core* const self = here->running();
    if (self == nullptr) stream_of_ult("yield");
    here->leave_to_yield();
    if (self->requests.load(std::memory_order_relaxed) != 0) detail::throw_if_canceled();
}

bool yield_to(ult& next) {
    if (next.core_ == nullptr) detail::refuse_empty_handle("ult", "yield to it");
    dispatcher* const here = dispatcher::current();
    if (here == nullptr || here->running() == nullptr) stream_of_ult("yield to another ULT");
    ult_core& self = *here->running();
    const bool was_ready = here->leave_to(*next.core_);
    if (!was_ready) here->leave_to_yield();
    if (self.requests.load(std::memory_order_relaxed) != 0) detail::throw_if_canceled();
    return was_ready;
}

[[gnu::noinline]] pool& home() {
    dispatcher* const calling = dispatcher::current_in_line();
    dispatcher& here = calling != nullptr && calling->running() != nullptr
                           ? *calling
                           : stream_of_ult("have a home pool");
    // The primary ULT's own home is reserved for it.
    return here.is_thread(*here.running()) ? here.work().main_pool() : *here.running()->home();
}

// Not inlined, so that the address of errno is computed anew.
[[gnu::noinline]] int last_error() noexcept {
    asm volatile("");
    return errno;
}

[[gnu::noinline]] void set_last_error(int number) noexcept {
    asm volatile("");
    errno = number;
}

void sleep_until(std::chrono::steady_clock::time_point when) {
    waiter me;
    me.allow_cancel();
    me.waits_for("sleep");
    if (!me.park_until(when)) detail::throw_if_canceled();
}

void exit() {
    detail::running_that_may_exit();
    throw detail::exit_ult{};
}

}  // namespace this_task

}  // namespace amalgam
