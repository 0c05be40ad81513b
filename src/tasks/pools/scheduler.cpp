#include <algorithm>
#include <utility>

#include <amalgam/core/random.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/tasks/scheduler.hpp>

#include "tasks/streams/stream.hpp"

namespace amalgam {

bool scheduler::done() const noexcept {
    for (const pool* each : pools()) {
        if (each->ults() != 0 || !each->empty()) return false;
    }
    return true;
}

pool_scheduler::pool_scheduler(std::vector<pool*> pools) : pools_(std::move(pools)) {
    if (pools_.empty()) {
        throw error(errc::invalid, "a scheduler needs at least one pool");
    }
    if (std::find(pools_.begin(), pools_.end(), nullptr) != pools_.end()) {
        throw error(errc::invalid, "a scheduler was given a null pool");
    }
}

work_unit* basic_scheduler::next() noexcept {
    for (std::size_t tried = 0; tried < pools_.size(); ++tried) {
        pool& mine = *pools_[turn_];
        turn_ = turn_ + 1 == pools_.size() ? 0 : turn_ + 1;
        if (work_unit* const unit = mine.pop()) return unit;
    }
    return nullptr;
}

work_unit* priority_scheduler::next() noexcept {
    for (pool* each : pools_) {
        if (work_unit* const unit = each->pop()) return unit;
    }
    return nullptr;
}

work_stealing_scheduler::work_stealing_scheduler(std::vector<pool*> pools)
    : pool_scheduler(std::move(pools)), random_(random_u64()) {}

work_unit* work_stealing_scheduler::next() noexcept {
    work_unit* const mine = pools_.front()->pop();
    return mine != nullptr ? mine : steal();
}

[[gnu::noinline]] work_unit* work_stealing_scheduler::steal() noexcept {
    pool& mine = *pools_.front();
    const std::size_t victims = pools_.size() - 1;
    if (victims == 0) return nullptr;
    std::size_t at = random_.below(victims);
    for (std::size_t tried = 0; tried < victims; ++tried) {
        if (work_unit* const unit = pools_[1 + at]->pop()) {
            unit->move_to(mine);
            if (auto* const here = detail::dispatcher::current()) here->count_steal();
            return unit;
        }
        at = at + 1 == victims ? 0 : at + 1;
    }
    return nullptr;
}

namespace {

struct stacked_unit final : work_unit {
    explicit stacked_unit(std::unique_ptr<scheduler> what)
        : work_unit(&run_unit), order(std::move(what)) {}

    static void run_unit(work_unit& unit) noexcept {
        const std::unique_ptr<stacked_unit> self(static_cast<stacked_unit*>(&unit));
        detail::stream::current()->schedulers().stack(std::move(self->order),
                                                      std::move(self->ended));
    }

    std::unique_ptr<scheduler> order;
    promise<void> ended;
};

}  // namespace

future<void> post_scheduler(pool& where, std::unique_ptr<scheduler> order) {
    if (order == nullptr) {
        throw error(errc::invalid,
                    "the scheduler to post is null; example: "
                    "std::make_unique<priority_scheduler>(std::vector<pool*>{&mine})");
    }
    auto unit = std::make_unique<stacked_unit>(std::move(order));
    future<void> ended = unit->ended.get_future();
    where.push(*unit.release());
    return ended;
}

}  // namespace amalgam
