#include "tasks/dispatch/record.hpp"

#include <utility>

#include "tasks/dispatch/dispatcher.hpp"
#include "tasks/dispatch/registry.hpp"

namespace amalgam {

namespace detail {

namespace {

std::uint64_t new_id() noexcept {
    static std::atomic<std::uint64_t> next{1};
    return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

ult_record::ult_record(ult_core& core) noexcept : id(new_id()), core_(&core), notice_(*this) {}

ult_record& ult_record::of(ult_core& core) {
    if (ult_record* const known = core.record.load(std::memory_order_acquire)) return *known;
    auto* const made = new ult_record(core);
    ult_record* known = nullptr;
    if (!core.record.compare_exchange_strong(known, made, std::memory_order_acq_rel)) {
        made->let_go();
        return *known;
    }
    core.give_back_slowly_from_now_on();
    return *made;
}

void ult_record::end(ult_record& last) noexcept {
    {
        const std::lock_guard hold(last.core_stays_);
        last.core_ = nullptr;
    }
    last.let_go();
}

void ult_record::let_go() noexcept {
    if (users_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

bool ult_record::enlist(wait_node& me) noexcept {
    const std::lock_guard hold(waiting_);
    if (std::exchange(resumed_, false)) return false;
    waiting_.push(me);
    return true;
}

void ult_record::suspend() {
    wait_node me;
    if (enlist(me)) wait_resumed(me);
}

void ult_record::wait_resumed(wait_node& me) {
    waiting_.wait_cancelable_until(me, waiter::time_point::max(), "resume");
}

wait_node* ult_record::take_suspended() noexcept {
    const std::lock_guard hold(waiting_);
    wait_node* const found = waiting_.pop();
    if (found == nullptr) resumed_ = true;
    return found;
}

void ult_record::on_migrate(std::function<void()> tell) {
    callback made;
    if (tell) made = std::make_shared<const std::function<void()>>(std::move(tell));
    const std::lock_guard hold(core_stays_);
    tells_.store(made != nullptr, std::memory_order_relaxed);
    tell_.swap(made);
}

bool ult_record::push_notice(ult_core& moved) noexcept {
    if (!tells_.load(std::memory_order_relaxed)) return false;
    notice_.priority = moved.priority;
    notice_.move_to(*moved.home());
    moved.home()->push(notice_);
    return true;
}

void ult_record::notice::run_unit(work_unit& self) noexcept {
    ult_record& mine = static_cast<notice&>(self).of;
    callback tell;
    {
        const std::lock_guard hold(mine.core_stays_);
        tell = mine.tell_;
    }
    try {
        if (tell) (*tell)();
    } catch (...) {
        log_thrown("an exception escaped from a ULT's on_migrate()");
    }
    dispatcher::stay_in_parent();
    mine.core_->make_ready();  // it has not ended, as it does not run
}

void ult_record::forget_resume() noexcept {
    const std::lock_guard hold(waiting_);
    resumed_ = false;
}

ult_core* take_named(dispatcher& here, const ult_ref& next) noexcept {
    ult_core* taken = nullptr;
    if (ult_record* const named = record_of(next)) {
        named->with_core([&](ult_core& core) {
            if (here.take(core)) taken = &core;
        });
    }
    return taken;
}

ult_state state_of(ult_core& core) noexcept {
    if (core.was_left_behind() || core.is_finished() || core.home() == nullptr)
        return ult_state::ended;
    const dispatcher* const here = dispatcher::current();
    if (here != nullptr && here->running() == &core) return ult_state::running;
    if (core.type.load(std::memory_order_relaxed) != nullptr) return ult_state::created;
    ult_core* const one = &core;
    const ult_registry::hold still({&one, 1});
    if (still.running(core) != nullptr) return ult_state::running;
    if (core.home() == nullptr) return ult_state::ended;
    return ult_registry::is_parked(core) ? ult_state::parked : ult_state::ready;
}

}  // namespace detail

using detail::ult_record;

ult_ref::ult_ref(ult_record& of) noexcept : record_(&of) {
    of.keep();
}

ult_ref::ult_ref(const ult_ref& other) noexcept : record_(other.record_) {
    if (record_ != nullptr) record_->keep();
}

void ult_ref::release() noexcept {
    if (record_ != nullptr) record_->let_go();
}

std::uint64_t ult_ref::id() const noexcept {
    return record_ == nullptr ? 0 : record_->id;
}

ult_state ult_ref::state() const noexcept {
    ult_state is = ult_state::ended;
    if (record_ != nullptr)
        record_->with_core([&](detail::ult_core& core) { is = detail::state_of(core); });
    return is;
}

bool ult_ref::resume() const {
    if (record_ == nullptr) detail::refuse_empty_ref("resume");
    detail::wait_node* const found = record_->take_suspended();
    if (found == nullptr) return false;
    found->who.unpark();
    return true;
}

void ult_ref::cancel() const {
    if (record_ == nullptr) detail::refuse_empty_ref("cancel");
    record_->with_core([](detail::ult_core& core) {
        if (!core.is_finished() && core.home() != nullptr) detail::cancel_ult(core);
    });
}

void ult_ref::on_migrate(std::function<void()> tell) const {
    if (record_ == nullptr) detail::refuse_empty_ref("set its on_migrate()");
    record_->on_migrate(std::move(tell));
}

void ult_ref::migrate() const {
    if (record_ == nullptr) detail::refuse_empty_ref("migrate");
    record_->with_core([](detail::ult_core& core) { detail::ask_to_move(core); });
}

void ult_ref::migrate(pool& where) const {
    if (record_ == nullptr) detail::refuse_empty_ref("migrate");
    record_->with_core([&](detail::ult_core& core) { detail::ask_to_move(core, where); });
}

}  // namespace amalgam
