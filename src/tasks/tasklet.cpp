#include <utility>

#include <amalgam/core/log.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/tasks/detail/future_state.hpp>
#include <amalgam/tasks/tasklet.hpp>

#include "tasks/join_state.hpp"
#include "tasks/left_behind.hpp"
#include "tasks/stream.hpp"
#include "tasks/ult_core.hpp"

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
    static void free(tasklet_core& self, stream* here) noexcept {
        const std::size_t bytes = sizeof(tasklet_core) + self.type->bytes;
        std::destroy_at(&self);
        block_cache::free(&self, bytes, stream::blocks_of(here));
    }
    [[gnu::noinline]] void wait_for_end() {
        const stream* const here = stream::current();
        wait(here != nullptr && here->owns(home()));
    }
    void log_lost() noexcept {
        log(log_level::error, "tasks", "an exception escaped from a tasklet",
            {{"what", describe(failed)}});
    }
    /// Its pool was destroyed before it ran; whoever frees it destroys its body.
    void leave_behind() noexcept { set_home(nullptr); }
    void destroy_body_left() noexcept {
        if (home() == nullptr) type->destroy(closure());
    }
    /// Frees it too.
    [[noreturn]] static void rethrow(tasklet_core& self) {
        const std::exception_ptr why = std::exchange(self.failed, nullptr);
        self.destroy_body_left();
        free(self, stream::current());
        std::rethrow_exception(why);
    }

    static void run_unit(work_unit& unit) noexcept {
        auto& self = static_cast<tasklet_core&>(unit);
        try {
            self.type->run(self.closure());
        } catch (...) {
            self.failed = std::current_exception();
        }
        stream& here = *stream::current();
        if (!here.end(self)) return;
        if (self.failed) self.log_lost();
        free(self, &here);
    }

    const closure_type* type;
};

bool runs_tasklets(work_unit::run_function how) noexcept {
    return how == &tasklet_core::run_unit;
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
    tasklet_core::free(self, stream::current());
}

prepared_tasklet prepare_tasklet(pool& where, const closure_type& type, bool joinable) {
    auto* made = ::new (block_cache::allocate(sizeof(tasklet_core) + type.bytes,
                                              stream::blocks_of(stream::current())))
        tasklet_core(where, type, joinable);
    return {made, made->closure()};
}

void drop_tasklet(tasklet_core& made) noexcept {
    tasklet_core::free(made, stream::current());
}

void start_tasklet(tasklet_core& made) noexcept {
    stream* const here = stream::current();
    if (here != nullptr && here->push_own(made)) {
        made.made_at_home = true;  // as it does not run before the caller leaves
    } else {
        made.home()->push(made);
    }
}

}  // namespace detail

using detail::stream;
using detail::tasklet_core;

void tasklet::end() noexcept {
    detail::join_or_detach(*this, "a tasklet's handle was destroyed without join()");
}

void tasklet::join() {
    if (core_ == nullptr) detail::refuse_empty_handle("tasklet", "join");
    if (!core_->is_finished()) core_->wait_for_end();
    tasklet_core& core = *std::exchange(core_, nullptr);
    if (core.failed) [[unlikely]]
        tasklet_core::rethrow(core);
    tasklet_core::free(core, stream::current());
}

void tasklet::detach() {
    if (core_ == nullptr) detail::refuse_empty_handle("tasklet", "detach");
    tasklet_core& core = *std::exchange(core_, nullptr);
    stream* const here = stream::current();
    if (!core.detach(here != nullptr && here->owns(core.home()))) return;
    if (core.failed) {
        core.log_lost();
        core.destroy_body_left();
    }
    tasklet_core::free(core, here);
}

}  // namespace amalgam
