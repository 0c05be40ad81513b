#include <utility>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/scheduler.hpp>

namespace amalgam {

basic_scheduler::basic_scheduler(std::vector<pool*> pools) : pools_(std::move(pools)) {
    if (pools_.empty()) {
        throw error(errc::invalid, "a scheduler without pools has nothing to run: give it one");
    }
}

work_unit* basic_scheduler::next() noexcept {
    for (pool* each : pools_) {
        if (work_unit* const unit = each->pop()) return unit;
    }
    return nullptr;
}

}  // namespace amalgam
