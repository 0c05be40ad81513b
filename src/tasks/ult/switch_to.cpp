#include <memory>

#include <amalgam/tasks/extension/direct_yield.hpp>
#include <amalgam/tasks/extension/run_another.hpp>
#include <amalgam/tasks/switch_to.hpp>

#include "tasks/dispatch/dispatcher.hpp"
#include "tasks/dispatch/hooks.hpp"
#include "tasks/dispatch/record.hpp"
#include "tasks/dispatch/ult_core.hpp"

namespace amalgam {

using detail::dispatcher;
using detail::ult_core;
using detail::ult_record;

namespace {

ult_core& core_or_refuse(const ult& next, const char* act) {
    ult_core* const core = detail::core_of(next);
    if (core == nullptr) detail::refuse_empty_handle("ult", act);
    return *core;
}

ult_record& record_or_refuse(const ult_ref& next, const char* act) {
    ult_record* const record = detail::record_of(next);
    if (record == nullptr) detail::refuse_empty_ref(act);
    return *record;
}

ult_core* taken(dispatcher& here, ult& next) noexcept {
    ult_core& core = *detail::core_of(next);
    return here.take(core) ? &core : nullptr;
}

ult_core* taken(dispatcher& here, const ult_ref& next) noexcept {
    return detail::take_named(here, next);
}

bool yield_to_taken(dispatcher& here, ult_core* next) {
    const bool switched = next != nullptr && here.leave_to_taken(*next);
    if (!switched) here.leave_to_yield();
    detail::throw_if_canceled();
    return switched;
}

template <typename Next>
bool suspend_to_any(Next& next) {
    dispatcher& here = detail::stream_of_ult("suspend itself");
    ult_record& mine = ult_record::of(*here.running());
    detail::wait_node me;
    me.who.allow_cancel();
    me.who.waits_for("resume");
    if (!mine.enlist(me)) return yield_to_taken(here, taken(here, next));
    ult_core* const to = taken(here, next);
    if (to != nullptr) here.leave_to_park_for(me.who, *to);
    mine.wait_resumed(me);
    return to != nullptr;
}

bool resume_and_yield_to_any(ult_record& next) {
    dispatcher& here = detail::stream_of_ult("yield to another ULT");
    detail::wait_node* const found = next.take_suspended();
    const bool switched = found != nullptr && here.unpark_and_leave_to(found->who);
    // After a switch `here` may be another thread's.
    if (!switched) here.leave_to_yield();
    detail::throw_if_canceled();
    return switched;
}

}  // namespace

namespace detail {

[[gnu::noinline]] bool may_yield_directly() noexcept {
    const dispatcher* const here = dispatcher::current_in_line();
    return here != nullptr && here->may_leave_directly();
}

[[gnu::noinline]] bool may_run_another() noexcept {
    dispatcher* const here = dispatcher::current_in_line();
    return here != nullptr && !hooks::any() && here->may_run_another();
}

[[gnu::noinline]] void leave_pool_at_end() noexcept {
    if (dispatcher* const here = dispatcher::current_in_line()) here->leave_pool_at_end();
}

[[gnu::noinline]] bool yield_directly_holding(work_unit& next, std::atomic<bool>& held) noexcept {
    dispatcher* const here = dispatcher::current_in_line();
    return here != nullptr && here->leave_directly_holding(static_cast<ult_core&>(next), held);
}

void yield_directly(work_unit& next) noexcept {
    dispatcher::current()->leave_directly(next);
}

}  // namespace detail

namespace this_task {

bool yield_to(const ult_ref& next) {
    record_or_refuse(next, "yield to it");
    dispatcher& here = detail::stream_of_ult("yield to another ULT");
    return yield_to_taken(here, taken(here, next));
}

bool suspend_to(ult& next) {
    core_or_refuse(next, "suspend to it");
    return suspend_to_any(next);
}

bool suspend_to(const ult_ref& next) {
    record_or_refuse(next, "suspend to it");
    return suspend_to_any(next);
}

void exit_to(ult& next) {
    core_or_refuse(next, "exit to it");
    exit_to(next.ref());
}

void exit_to(const ult_ref& next) {
    record_or_refuse(next, "exit to it");
    ult_core& self = detail::running_that_may_exit();
    if (self.locals == nullptr) self.locals = new detail::local_values;
    self.locals->then = next;
    throw detail::exit_ult{};
}

bool resume_and_yield_to(ult& next) {
    return resume_and_yield_to_any(ult_record::of(core_or_refuse(next, "resume it")));
}

bool resume_and_yield_to(const ult_ref& next) {
    return resume_and_yield_to_any(record_or_refuse(next, "resume it"));
}

}  // namespace this_task

}  // namespace amalgam
