#include <utility>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/ult.hpp>

#include "tasks/dispatch/dispatcher.hpp"
#include "tasks/dispatch/left_behind.hpp"
#include "tasks/dispatch/record.hpp"
#include "tasks/dispatch/registry.hpp"
#include "tasks/dispatch/ult_core.hpp"

namespace amalgam {

using detail::dispatcher;
using detail::ready_work;
using detail::ult_core;

namespace {

/// Calls `act(pool&)` with the main pool of a stream that does not serve `home`, and that cannot
/// end meanwhile.
template <typename Act>
void with_other_stream(const pool* home, Act act) {
    bool found = false;
    detail::ult_registry::with_streams([&](std::span<dispatcher* const> all) {
        pool* best = nullptr;
        for (dispatcher* each : all) {
            pool& its = each->work().main_pool();
            if (&its == home || (home != nullptr && ready_work::serves(*each, *home))) continue;
            if (!ready_work::stays_served(its)) continue;
            if (best == nullptr || its.ults() < best->ults()) best = &its;
        }
        found = best != nullptr;
        if (found) act(*best);
    });
    if (found) return;
    throw error(errc::invalid,
                "no other stream can take this ULT: create another execution_stream, not a driven "
                "one, before it migrates");
}

}  // namespace

void detail::ask_to_move(ult_core& core, pool& where) {
    if (core.is_pinned()) refuse_pinned();
    if (!where.served()) refuse_unserved(where);
    left_behind::expect_ult(where);
    core.wanted_home.store(&where, std::memory_order_relaxed);
    core.requests.fetch_or(ult_core::asked_to_move, std::memory_order_release);
}

void detail::ask_to_move(ult_core& core) {
    if (core.is_pinned()) refuse_pinned();
    with_other_stream(core.home(), [&](pool& other) { ask_to_move(core, other); });
}

ult_core& detail::running_that_may_move(dispatcher& here) {
    ult_core& self = *here.running();
    if (here.is_thread(self)) {
        throw error(errc::invalid,
                    "the ULT of a primary stream cannot leave its thread: spawn another ULT in the "
                    "pool where the work should run");
    }
    if (self.is_pinned()) refuse_pinned();
    return self;
}

void ult::migrate(pool& where) {
    if (core_ == nullptr) detail::refuse_empty_handle("ult", "migrate");
    detail::ask_to_move(*core_, where);
}

void ult::migrate() {
    if (core_ == nullptr) detail::refuse_empty_handle("ult", "migrate");
    detail::ask_to_move(*core_);
}

void ult::on_migrate(std::function<void()> tell) {
    if (core_ == nullptr) detail::refuse_empty_handle("ult", "set its on_migrate()");
    detail::ult_record::of(*core_).on_migrate(std::move(tell));
}

void ult_ref::migrate(execution_stream& where) const {
    migrate(where.main_pool());
}

namespace this_task {

void migrate(pool& where) {
    dispatcher& here = detail::stream_of_ult("migrate");
    detail::running_that_may_move(here);
    if (!where.served()) detail::refuse_unserved(where);
    here.leave_to_move(where);
}

// Its new home counts it from then on, so that it is not lost if that stream ends at once.
void migrate() {
    dispatcher& here = detail::stream_of_ult("migrate");
    ult_core& self = detail::running_that_may_move(here);
    pool* to = nullptr;
    with_other_stream(self.home(), [&](pool& other) {
        self.move_to(other);
        to = &other;
    });
    here.leave_to_move(*to);
}

}  // namespace this_task

}  // namespace amalgam
