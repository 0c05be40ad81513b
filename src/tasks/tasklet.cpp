#include <amalgam/core/log.hpp>
#include <amalgam/tasks/detail/closure.hpp>
#include <amalgam/tasks/detail/future_state.hpp>

#include "tasks/ult_core.hpp"

namespace amalgam::detail {

namespace {

/// The closure follows in the same block.
struct alignas(std::max_align_t) tasklet final : work_unit {
    explicit tasklet(const closure_type& what) noexcept : work_unit(&run_unit), type(&what) {}

    void* closure() noexcept { return this + 1; }
    static void free(tasklet& self) noexcept {
        free_block(&self, sizeof(tasklet) + self.type->bytes);
    }

    static void run_unit(work_unit& unit) noexcept {
        auto& self = static_cast<tasklet&>(unit);
        try {
            self.type->run(self.closure());
        } catch (...) {
            log(log_level::error, "tasks", "an exception escaped from a tasklet",
                {{"what", describe(std::current_exception())}});
        }
        free(self);
    }

    const closure_type* type;
};

}  // namespace

prepared_tasklet prepare_tasklet(const closure_type& type) {
    auto* made = ::new (allocate_block(sizeof(tasklet) + type.bytes)) tasklet(type);
    return {made, made->closure()};
}

void drop_tasklet(work_unit& unit) noexcept {
    tasklet::free(static_cast<tasklet&>(unit));
}

}  // namespace amalgam::detail
