#include <amalgam/core/status.hpp>
#include <amalgam/tasks/ult.hpp>

#include "tasks/dispatch/dispatcher.hpp"
#include "tasks/dispatch/record.hpp"
#include "tasks/dispatch/ult_core.hpp"

namespace amalgam {

using detail::dispatcher;
using detail::ult_core;
using detail::ult_record;

bool ult::try_join() {
    detail::refuse_join(core_, dispatcher::current());
    if (!core_->is_finished()) return false;
    join();
    return true;
}

bool ult::join_until(std::chrono::steady_clock::time_point deadline) {
    dispatcher* const here = dispatcher::current();
    detail::refuse_join(core_, here);
    if (!core_->ends_by(deadline, core_->home(), here)) return false;
    join();
    return true;
}

void ult::wait() {
    dispatcher* const here = dispatcher::current();
    detail::refuse_join(core_, here);
    if (core_->is_finished()) return;
    detail::refuse_to_join(core_->home());
    if (here == nullptr || here->join_here(*core_) == nullptr) core_->wait(false);
}

std::uint64_t ult::id() const {
    if (core_ == nullptr) detail::refuse_empty_handle("ult", "ask for its id");
    return ult_record::of(*core_).id;
}

ult_state ult::state() const noexcept {
    return core_ == nullptr ? ult_state::ended : detail::state_of(*core_);
}

ult_ref ult::ref() const {
    if (core_ == nullptr) detail::refuse_empty_handle("ult", "name it");
    return ult_ref(ult_record::of(*core_));
}

bool ult::resume() {
    if (core_ == nullptr) detail::refuse_empty_handle("ult", "resume");
    detail::wait_node* const found = ult_record::of(*core_).take_suspended();
    if (found == nullptr) return false;
    found->who.unpark();
    return true;
}

pool* ult::home() const noexcept {
    return core_ == nullptr || core_->was_left_behind() ? nullptr : core_->home();
}

std::size_t ult::stack_bytes() const noexcept {
    return core_ == nullptr ? 0 : core_->stack_bytes();
}

namespace this_task {

ult_ref self() {
    return ult_ref(ult_record::of(*detail::stream_of_ult("name itself").running()));
}

std::uint64_t id() {
    const dispatcher* const here = dispatcher::current();
    ult_core* const running = here == nullptr ? nullptr : here->running();
    return running == nullptr ? 0 : ult_record::of(*running).id;
}

void suspend() {
    ult_record::of(*detail::stream_of_ult("suspend itself").running()).suspend();
}

}  // namespace this_task

}  // namespace amalgam
