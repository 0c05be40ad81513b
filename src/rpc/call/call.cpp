#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/detail/printable.hpp>
#include <amalgam/rpc/call_context.hpp>
#include <amalgam/rpc/detail/one_way.hpp>
#include <amalgam/tasks/extension/local.hpp>
#include <amalgam/tasks/ult.hpp>

#include "rpc/call/caller.hpp"
#include "rpc/call/extras.hpp"
#include "rpc/call/pending_call.hpp"
#include "rpc/limits.hpp"

namespace amalgam::detail {

namespace {

/// A one-way call posted by another thread to the stream. Lives in front of its arguments, in one
/// buffer.
struct handed_one_way final : work_unit {
    handed_one_way(buffer held, const call_target& target, clock::time_point until) noexcept
        : work_unit(&run_it), message(target, until), home(std::move(held)) {}

    static void run_it(work_unit& self) noexcept {
        auto& me = static_cast<handed_one_way&>(self);
        caller_of(*me.message.core).post_handed(me.message);
        destroy(me);
    }
    static void destroy(handed_one_way& self) noexcept {
        const buffer until_the_end = std::move(self.home);
        self.~handed_one_way();
    }

    one_way_message message;
    std::vector<std::byte> extras;
    lent_list loans;
    buffer home;
};

/// Whether calls of this target need dress_call().
bool needs_dress(const call_settings& settings, const call_target& target,
                 const call_context* serving) noexcept {
    return target.dressed || (serving != nullptr && serving->trace() != nullptr) ||
           !settings.interceptors(target.what->library).empty() ||
           ((settings.traced || settings.counted) && !target.what->library);
}

/// Whether this call of the target needs no more than its arguments sent, and perhaps a deadline.
bool is_plain(const call_target& target, const call_context* serving) noexcept {
    return target.attempts <= 1 && !target.dressed &&
           (serving == nullptr || serving->trace() == nullptr);
}

bool has_deadline(const call_target& target, const call_context* serving) noexcept {
    return target.timeout != std::chrono::nanoseconds::max() ||
           (serving != nullptr && serving->deadline());
}

[[noreturn]] void cannot_post(const call_target& target, errc code, std::string_view why) {
    throw error(code,
                fmt::format("one-way call of \"{}\": {}", printable_name(target.what->name), why));
}

[[noreturn]] void cannot_post_to_lost(const call_target& target, caller& by) {
    const errc why = by.why_lost(target.to).code;
    cannot_post(target, why, peer_addresses::sentence_of_lost(why));
}

}  // namespace

call_record::call_record(const call_target& target)
    : arguments(&context_of(*target.core).buffers()),
      core_(target.core),
      target_(&target),
      loans_() {
    static_assert(sizeof(pending_call) <= pending_bytes && alignof(pending_call) <= 8);
    ::new (static_cast<void*>(pending_)) pending_call(*this, target);
}

static_assert(std::is_trivially_destructible_v<std::optional<pending_call::posted_task>>);

[[gnu::noinline]] void call_record::end_rare() noexcept {
    pending().~pending_call();
    loans_.~lent_list();
}

call_record::~call_record() {
    // Most have nothing that needs it.
    if (pending().extras != nullptr || pending().timer || loans_.capacity() != 0) [[unlikely]]
        end_rare();
}

std::string_view call_record::procedure_name() const noexcept {
    return pending().what->name;
}

void call_record::submit_in_turn() noexcept {
    if (!submit_plain(task_here())) submit_after_others();
}

/// What is queued goes first.
[[gnu::noinline]] void call_record::submit_after_others() noexcept {
    const peer& to = target_->to;
    try {
        if (to && to.owner() == core_) caller_of(*core_).admit(to);
    } catch (...) {
        return pending().refuse(thrown_here("waiting for room in the queue"));
    }
    submit();
}

void call_record::submit() noexcept {
    submit(task_here());
}

inline void call_record::submit(const task_place& here) noexcept {
    if (!submit_plain(here)) [[unlikely]]
        submit_any();
}

/// False: the call needs more than its arguments sent at once. Else this may be gone.
inline bool call_record::submit_plain(const task_place& here) noexcept {
    const auto* const serving = static_cast<const call_context*>(*here.local);
    if (window != 0 || !is_plain(*target_, serving)) [[unlikely]]
        return false;
    caller& by = caller_of(*core_);
    engine_context& context = by.context();
    // On the stream: its driver calls settle().
    if (here.stream == &context.stream()) return begin_plain(by, serving);
    if (!context.on_owner(here.stream) || !begin_plain(by, serving)) return false;
    context.settle_idle();
    return true;
}

inline bool call_record::begin_plain(caller& by, const call_context* serving) noexcept {
    if (has_deadline(*target_, serving))
        return by.begin_timed(pending(), target_->timeout, serving);
    return by.begin_plain(pending());
}

[[gnu::noinline]] void call_record::submit_any() noexcept {
    const call_context* const serving = call_context::try_current();
    caller& by = caller_of(*core_);
    engine_context& context = by.context();
    pending_call& mine = pending();
    mine.deadline = context.deadline_after(target_->timeout, serving);
    const auto begin = [&]() noexcept {
        if (context.on_owner() && !by.would_overtake()) {
            // On the stream: its driver calls settle().
            if (execution_stream::current() == &context.stream()) return by.begin(mine);
            by.begin(mine);  // This may be gone afterwards.
            return context.settle_idle();
        }
        by.handing();
        if (context.hand_over(mine.submit.emplace(&pending_call::run_submit, mine))) return;
        by.taken_back();
        mine.refuse({{errc::closed}, context.why_closed()});
    };
    if (target_->attempts > 1 || window != 0 || !loans_.empty() ||
        arguments.size() > by.outbox().eager_bytes(mine.to) ||
        needs_dress(by.settings(), *target_, serving)) [[unlikely]] {
        const core_reference alive(*core_);  // An interceptor may destroy the engine.
        try {
            mine.dress(serving);
        } catch (...) {
            return mine.refuse(thrown_here("adding extras to the call"));
        }
        return begin();
    }
    begin();
}

void call_record::request_cancel() noexcept {
    // A value being deserialized may cancel its call, which is then in use below us.
    engine_context& context = context_of(*core_);
    pending_call& mine = pending();
    if (context.on_owner() && !context.is_busy()) {
        caller_of(*core_).cancel(mine);
        return context.settle_idle();
    }
    // If the engine has ended, so has this call.
    if (!context.hand_over(mine.cancel.emplace(&pending_call::run_cancel, mine))) release();
}

void call_record::raise() const {
    throw error(why.what, why.sentence);
}

void waited_call::wait() {
    const task_place here = task_here();
    if (here.ult == nullptr) [[unlikely]]
        return wait_outside_ults(here);
    waiter me(*here.ult);
    wait_by(me, here);
}

[[gnu::noinline]] void waited_call::wait_outside_ults(const task_place& here) {
    waiter me;
    context_of(*core_).check_may_wait();
    wait_by(me, here);
}

[[gnu::always_inline]] inline void waited_call::wait_by(waiter& who, const task_place& here) {
    who_ = &who;
    who.waits_for("rpc reply");
    submit(here);
    context_of(*core_).wait_for_end(who, [this] { caller_of(*core_).cancel_waited(pending()); });
}

buffer_pool* one_way::pool_of(const call_target& target) {
    return &context_of(*target.core).buffers();
}

bool one_way::may_hold(const const_bytes& last) const {
    // Copying less is faster than holding it; in XDR, padding follows it.
    constexpr std::size_t worth_holding = 2048;
    return last.size() >= worth_holding && target_.as == encoding::native &&
           arguments.size() + rest_of_message::alignment + last.size() <= most_in_message();
}

void one_way::hold(std::shared_ptr<const void> owner, const_bytes last) {
    archive_writer(arguments, target_.as).count(last.size());
    held_ = {std::move(owner), last};
}

void one_way::hold(std::shared_ptr<const void> owner, const rest_of_message& last) {
    archive_writer(arguments, target_.as).align(rest_of_message::alignment);
    held_ = {std::move(owner), last.bytes};
}

std::size_t one_way::most_in_message() const {
    const std::size_t whole = caller_of(*target_.core).outbox().max_message_bytes(target_.to);
    const std::size_t overhead =
        request_bytes + target_.what->wire_text.size() + limits::max_extras_bytes;
    return whole - std::min(whole, overhead);
}

void one_way::send_by_rendezvous(std::vector<std::byte>& extras) {
    engine_core& core = *target_.core;
    caller& by = caller_of(core);
    const peer way = by.way_now(target_.to);
    auto values = std::make_shared<lent_values>(core, std::move(arguments), way);
    add_rendezvous(extras, values->key(way.port()), values->bytes(), by.settings().checksums);
    const origin between{&core, target_.to, &loans_, nullptr};
    const std::size_t bytes = values->bytes().size();
    lend(&between, std::move(values), bytes);
}

void one_way::send() {
    engine_core& core = *target_.core;
    caller& by = caller_of(core);
    engine_context& context = by.context();
    if (!target_.to || target_.to.owner() != &core) {
        cannot_post(
            target_, errc::invalid,
            "the peer is empty or belongs to another engine; get one from engine::lookup()");
    }
    const call_context* const serving = call_context::try_current();
    if (held_.owner == nullptr && loans_.empty() && is_plain(target_, serving) &&
        !has_deadline(target_, serving) && context.on_owner() && by.post_plain(target_, arguments))
        [[likely]] {
        return;
    }
    const clock::time_point deadline = context.deadline_after(target_.timeout, serving);
    std::vector<std::byte> extras;
    std::optional<core_reference> alive;
    std::optional<call_span> span;
    if (needs_dress(by.settings(), target_, serving)) {
        alive.emplace(core);  // An interceptor may destroy the engine.
        extras = dress_call(by.settings(), target_, true, deadline, serving);
        span = span_of(by.settings(), extras, serving, arguments.size());
    }
    // Calls that fit a message are sent as one, so that they stay in order.
    if (held_.owner == nullptr && arguments.size() > most_in_message()) send_by_rendezvous(extras);
    if (!loans_.empty()) add_loans(extras, loans_);
    tell_parent(extras, by.settings(), *target_.what, serving);
    by.admit(target_.to);
    if (span) span->end_one_way(target_.what->name, target_.to);
    one_way_message message(target_, deadline);
    message.arguments = arguments.bytes();
    message.extras = extras;
    message.held = std::move(held_);
    message.loans = &loans_;
    if (context.on_owner() && !by.would_overtake()) {
        peer_state* const there = by.way_to(target_.to);
        if (there == nullptr) {
            cannot_post_to_lost(target_, by);
        }
        if (!by.post(*there, message)) {
            if (!by.is_closed()) {
                cannot_post(target_, errc::no_memory, "out of memory");
            }
            cannot_post(target_, errc::closed, context.why_closed());
        }
        return;
    }
    if (by.is_lost(target_.to)) {
        cannot_post_to_lost(target_, by);
    }
    buffer held = context.buffers().take(sizeof(handed_one_way) + arguments.size());
    std::byte* const home = held.data();
    auto* const handed = ::new (home) handed_one_way(std::move(held), target_, deadline);
    std::byte* const bytes = home + sizeof(handed_one_way);
    if (arguments.size() != 0) std::memcpy(bytes, arguments.bytes().data(), arguments.size());
    handed->extras = std::move(extras);
    handed->message.arguments = {bytes, arguments.size()};
    handed->message.extras = handed->extras;
    handed->message.held = std::move(message.held);
    handed->loans = std::move(loans_);
    handed->message.loans = &handed->loans;
    by.handing();
    if (context.hand_over(*handed)) return;
    by.taken_back();
    handed_one_way::destroy(*handed);
    cannot_post(target_, errc::closed, context.why_closed());
}

void require_idempotent(const call_target& target) {
    if (target.idempotent) return;
    throw error(
        errc::invalid,
        fmt::format("\"{0}\" cannot be retried, as a call whose answer was lost may have run "
                    "already: mark the procedure idempotent if running it twice is harmless; "
                    "example: procedure<int(int)>(\"{0}\", {{.idempotent = true}})",
                    printable_name(target.what->name)));
}

}  // namespace amalgam::detail
