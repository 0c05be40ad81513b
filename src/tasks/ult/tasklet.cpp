#include <utility>

#include <amalgam/core/log.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/tasks/detail/future_state.hpp>
#include <amalgam/tasks/tasklet.hpp>

#include "tasks/dispatch/dispatcher.hpp"
#include "tasks/dispatch/hooks.hpp"
#include "tasks/dispatch/join_state.hpp"
#include "tasks/dispatch/left_behind.hpp"
#include "tasks/dispatch/ult_core.hpp"

namespace amalgam {

namespace detail {

/// The closure follows in the same block.
class alignas(std::max_align_t) tasklet_core final : public work_unit, public join_state {
public:
    tasklet_core(pool& where, const closure_type& what, bool joinable) noexcept
        : work_unit(&run_unit), type(&what) {
        set_home(&where);
        if (!joinable) joiner.store(detached_mark, std::memory_order_relaxed);
    }

    void* closure() noexcept { return this + 1; }
    static void free(tasklet_core& self, dispatcher* here) noexcept {
        const std::size_t bytes =
            sizeof(tasklet_core) + self.type.load(std::memory_order_relaxed)->bytes;
        std::destroy_at(&self);
        block_cache::free(&self, bytes, blocks_of(here));
    }
    void log_lost() noexcept {
        if (is_canceled_unbegun(failed)) return;
        log(log_level::error, "tasks", "an exception escaped from a tasklet",
            {{"what", describe(failed)}});
    }
    /// Where it runs it may have read the type already.
    void cancel() noexcept {
        const closure_type* was = type.load(std::memory_order_relaxed);
        if (was->canceled != nullptr && !begun.load(std::memory_order_relaxed))
            type.compare_exchange_strong(was, was->canceled, std::memory_order_relaxed);
    }
    /// Its pool was destroyed before it ran; its body is destroyed when it is freed.
    void leave_behind() noexcept { set_home(nullptr); }
    void destroy_body_left() noexcept {
        if (home() == nullptr) type.load()->destroy(closure());
    }
    /// Also frees it.
    [[noreturn]] static void rethrow(tasklet_core& self) {
        const std::exception_ptr why = std::exchange(self.failed, nullptr);
        self.destroy_body_left();
        free(self, dispatcher::current());
        std::rethrow_exception(why);
    }

    static void run_unit(work_unit& unit) noexcept {
        auto& self = static_cast<tasklet_core&>(unit);
        try {
            self.begun.store(true, std::memory_order_relaxed);
            self.type.load(std::memory_order_relaxed)->run(self.closure());
        } catch (...) {
            self.failed = std::current_exception();
        }
        dispatcher::stay_in_parent();
        dispatcher& here = *dispatcher::current_in_line();
        if (here.end(self)) end_detached(self, &here);
    }
    [[gnu::noinline]] static void end_detached(tasklet_core& self, dispatcher* here) noexcept {
        if (self.failed) self.log_lost();
        free(self, here);
    }

    std::atomic<bool> begun{false};
    std::atomic<const closure_type*> type;  // cancel() changes it
};

void fail_canceled_tasklet(void* closure) noexcept {
    static_cast<tasklet_core*>(closure)[-1].failed = tasklet_canceled_unbegun();
}

bool is_tasklet(const work_unit& unit) noexcept {
    return unit.runs_by(&tasklet_core::run_unit);
}

join_state& state_of_tasklet(work_unit& unit) noexcept {
    return static_cast<tasklet_core&>(unit);
}

void end_left_tasklet(work_unit& unit) noexcept {
    auto& self = static_cast<tasklet_core&>(unit);
    self.leave_behind();
    if (!self.is_detached()) self.failed = pool_destroyed("tasklet");
    if (!self.finish()) return;
    self.destroy_body_left();
    tasklet_core::free(self, dispatcher::current());
}

// Rare paths are separate and tail-called, so that common ones save no registers.

static prepared_tasklet make_tasklet(void* block, pool& where, const closure_type& type,
                                     bool joinable) noexcept {
    auto* made = ::new (block) tasklet_core(where, type, joinable);
    return {made, made->closure()};
}

[[gnu::noinline]] static prepared_tasklet prepare_tasklet_slowly(pool& where,
                                                                 const closure_type& type,
                                                                 bool joinable) {
    if (left_behind::is_left_to_parent(&where)) refuse_unserved(where);
    void* const block = block_cache::allocate(sizeof(tasklet_core) + type.bytes,
                                              blocks_of(dispatcher::current_in_line()));
    return make_tasklet(block, where, type, joinable);
}

[[gnu::noinline]] prepared_tasklet prepare_tasklet(pool& where, const closure_type& type,
                                                   bool joinable) {
    dispatcher* const here = dispatcher::current_in_line();
    void* const block = here == nullptr ? nullptr
                                        : block_cache::allocate_quickly(
                                              sizeof(tasklet_core) + type.bytes, blocks_of(here));
    if (block == nullptr) return prepare_tasklet_slowly(where, type, joinable);
    return make_tasklet(block, where, type, joinable);
}

void drop_tasklet(tasklet_core& made) noexcept {
    tasklet_core::free(made, dispatcher::current());
}

[[gnu::always_inline]] static inline void start_untold(tasklet_core& made) noexcept {
    dispatcher* const here = dispatcher::current_in_line();
    if (here != nullptr && here->work().push_own(made)) {
        made.made_at_home = true;  // it cannot run before the caller leaves
    } else {
        made.home()->push(made);
    }
}

[[gnu::noinline]] static void start_told(tasklet_core& made) noexcept {
    hooks::tell(task_event::created, made);
    start_untold(made);
}

[[gnu::noinline]] void start_tasklet(tasklet_core& made) noexcept {
    if (hooks::any()) [[unlikely]]
        return start_told(made);
    start_untold(made);
}

}  // namespace detail

using detail::dispatcher;
using detail::tasklet_core;

void tasklet::end() noexcept {
    if (!core_->is_finished() && detail::left_behind::is_left_to_parent(core_->home())) return;
    detail::join_or_detach(*this, "a tasklet's handle was destroyed without join()");
}

[[gnu::noinline]] void tasklet::join() {
    dispatcher* const here = dispatcher::current_in_line();
    if (here == nullptr || core_ == nullptr || !core_->is_finished() || core_->failed)
        return join_slowly();
    tasklet_core::free(*std::exchange(core_, nullptr), here);
}

[[gnu::noinline]] void tasklet::join_slowly() {
    if (core_ == nullptr) detail::refuse_empty_handle("tasklet", "join");
    if (!core_->is_finished()) detail::refuse_to_join(core_->home());
    dispatcher* const here = dispatcher::current();
    core_->wait(here != nullptr && here->work().owns(core_->home()));
    tasklet_core& core = *std::exchange(core_, nullptr);
    if (core.failed) tasklet_core::rethrow(core);
    tasklet_core::free(core, dispatcher::current());
}

bool tasklet::try_join() {
    if (core_ == nullptr) detail::refuse_empty_handle("tasklet", "join");
    if (!core_->is_finished()) return false;
    join();
    return true;
}

bool tasklet::join_until(std::chrono::steady_clock::time_point deadline) {
    if (core_ == nullptr) detail::refuse_empty_handle("tasklet", "join");
    if (!core_->ends_by(deadline, core_->home(), dispatcher::current())) return false;
    join();
    return true;
}

void tasklet::wait() {
    if (core_ == nullptr) detail::refuse_empty_handle("tasklet", "wait for its end");
    if (core_->is_finished()) return;
    detail::refuse_to_join(core_->home());
    dispatcher* const here = dispatcher::current();
    core_->wait(here != nullptr && here->work().owns(core_->home()));
}

ult_state tasklet::state() const noexcept {
    if (core_ == nullptr || core_->is_finished()) return ult_state::ended;
    return core_->begun.load(std::memory_order_relaxed) ? ult_state::running : ult_state::ready;
}

void tasklet::cancel() {
    if (core_ == nullptr) detail::refuse_empty_handle("tasklet", "cancel");
    core_->cancel();
}

void tasklet::check_revivable() const {
    if (core_ == nullptr) detail::refuse_empty_handle("tasklet", "revive");
    if (core_->is_finished()) return;
    throw error(errc::invalid,
                "only a tasklet that has ended can be revived: call wait() on its handle before");
}

void tasklet::detach() {
    if (core_ == nullptr) detail::refuse_empty_handle("tasklet", "detach");
    tasklet_core& core = *std::exchange(core_, nullptr);
    dispatcher* const here = dispatcher::current();
    if (!core.detach(here != nullptr && here->work().owns(core.home()))) return;
    if (core.failed) {
        core.log_lost();
        core.destroy_body_left();
    }
    tasklet_core::free(core, here);
}

}  // namespace amalgam
