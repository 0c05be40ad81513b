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
    static void free(tasklet_core& self) noexcept {
        const std::size_t bytes = sizeof(tasklet_core) + self.type->bytes;
        self.~tasklet_core();
        free_block(&self, bytes);
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
        free(self);
        std::rethrow_exception(why);
    }

    static void run_unit(work_unit& unit) noexcept {
        auto& self = static_cast<tasklet_core&>(unit);
        try {
            self.type->run(self.closure());
        } catch (...) {
            self.failed = std::current_exception();
        }
        if (!self.finish()) return;
        if (self.failed) self.log_lost();
        free(self);
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
    tasklet_core::free(self);
}

prepared_tasklet prepare_tasklet(pool& where, const closure_type& type, bool joinable) {
    auto* made = ::new (allocate_block(sizeof(tasklet_core) + type.bytes))
        tasklet_core(where, type, joinable);
    return {made, made->closure()};
}

void drop_tasklet(tasklet_core& made) noexcept {
    tasklet_core::free(made);
}

void start_tasklet(tasklet_core& made) noexcept {
    stream* const here = stream::current();
    if (here == nullptr || !here->push_own(made)) made.home()->push(made);
}

}  // namespace detail

using detail::tasklet_core;

tasklet& tasklet::operator=(tasklet&& other) noexcept {
    tasklet ended(std::move(*this));  // joined at the end of this scope
    core_ = std::exchange(other.core_, nullptr);
    return *this;
}

tasklet::~tasklet() {
    detail::join_or_detach(*this, "a tasklet's handle was destroyed without join()");
}

void tasklet::join() {
    if (core_ == nullptr) detail::refuse_empty_handle("tasklet", "join");
    core_->wait();
    tasklet_core& core = *std::exchange(core_, nullptr);
    if (core.failed) tasklet_core::rethrow(core);
    tasklet_core::free(core);
}

void tasklet::detach() {
    if (core_ == nullptr) detail::refuse_empty_handle("tasklet", "detach");
    tasklet_core& core = *std::exchange(core_, nullptr);
    if (!core.detach()) return;
    if (core.failed) {
        core.log_lost();
        core.destroy_body_left();
    }
    tasklet_core::free(core);
}

}  // namespace amalgam
