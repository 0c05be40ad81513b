#include <algorithm>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/extension/cpu_relax.hpp>
#include <amalgam/tasks/pool.hpp>
#include <amalgam/tasks/ult.hpp>

#include "tasks/streams/stream.hpp"

namespace amalgam {

void pool::push_many(std::span<work_unit* const> units) noexcept {
    for (work_unit* each : units)
        push(*each);
}

std::size_t pool::pop_many(std::span<work_unit*> into) noexcept {
    std::size_t taken = 0;
    while (taken < into.size() && (into[taken] = pop()) != nullptr)
        ++taken;
    return taken;
}

void pool::check_may_pop(const char* act) const {
    if (access_ == pool_access::any_stream || on_own_stream() || !served()) return;
    throw error(errc::invalid,
                fmt::format("only the stream that serves this pool can {} it: do so in that "
                            "stream's scheduler or ULTs, or use a pool for several streams, such "
                            "as shared_fifo_pool",
                            act));
}

namespace {

/// Pushes back what was popped, also when an exception passes.
class popped {
public:
    explicit popped(pool& from) : from_(from), units_(from.size()) {
        units_.resize(from.pop_many(units_));
    }
    ~popped() { from_.push_many(units_); }
    popped(const popped&) = delete;
    popped& operator=(const popped&) = delete;
    std::span<work_unit* const> units() const noexcept { return units_; }

private:
    pool& from_;
    std::vector<work_unit*> units_;
};

constexpr auto between_looks = std::chrono::microseconds(50);

}  // namespace

void pool::visit(unit_visitor see) {
    check_may_pop("look into");
    const popped all(*this);
    for (const work_unit* each : all.units())
        see(*each);
}

// A deadline that has passed means one look.
work_unit* pool::pop_until(time_point deadline) {
    check_may_pop("pop from");
    detail::dispatcher* const here = detail::dispatcher::current();
    if (here != nullptr && here->leaving_seen() == nullptr && here->running() == nullptr &&
        here->of().schedulers().runs_loop() && served_by(*here)) {
        return here->of().loop().pop_until(*this, deadline);
    }
    if (work_unit* const unit = pop()) return unit;
    const bool is_ult = here != nullptr && here->leaving_seen() == nullptr && this_task::in_ult();
    if (here != nullptr && !is_ult) return nullptr;
    for (int looks = 0; !is_ult && looks < 64; ++looks) {
        detail::cpu_relax();
        if (work_unit* const unit = pop()) return unit;
    }
    for (time_point now; (now = detail::task_now()) < deadline;) {
        const auto time = std::min<std::chrono::nanoseconds>(deadline - now, between_looks);
        if (is_ult) {
            this_task::sleep_for(time);
        } else {
            std::this_thread::sleep_for(time);
        }
        if (work_unit* const unit = pop()) return unit;
    }
    return nullptr;
}

}  // namespace amalgam
