#include <algorithm>
#include <new>
#include <utility>

#include <fmt/format.h>

#include <amalgam/rpc/call_context.hpp>
#include <amalgam/rpc/detail/one_way.hpp>
#include <amalgam/tasks/ult.hpp>

#include "rpc/engine_core.hpp"

namespace amalgam::detail {

namespace {

/// A call's own limit, or that of the call the caller serves: the earlier.
clock::time_point deadline_for(const engine_core& core, std::chrono::nanoseconds timeout) {
    clock::time_point deadline = clock::time_point::max();
    if (timeout != std::chrono::nanoseconds::max()) {
        const clock::time_point now = core.now();
        if (timeout < deadline - now) deadline = now + timeout;
    }
    if (const call_context* serving = call_context::try_current()) {
        if (const auto outer = serving->deadline()) deadline = std::min(deadline, *outer);
    }
    return deadline;
}

/// A one-way call that another thread makes, on its way to the stream: lives in front of its
/// arguments, in one buffer.
struct handed_one_way final : work_unit {
    handed_one_way(buffer held, const call_target& target, clock::time_point until) noexcept
        : work_unit(&run_it),
          core(*target.core),
          what(*target.what),
          to(target.to),
          deadline(until),
          home(std::move(held)) {}

    static void run_it(work_unit& self) noexcept {
        auto& me = static_cast<handed_one_way&>(self);
        me.core.taken_over();
        if (peer_state* const there = me.core.peers().find(me.to)) {
            me.core.calls().post(*there, me.what, me.deadline, me.arguments);
        } else {
            me.core.calls().lost_one_way();
        }
        destroy(me);
    }
    static void destroy(handed_one_way& self) noexcept {
        const buffer until_the_end = std::move(self.home);
        self.~handed_one_way();
    }

    engine_core& core;
    const remote_procedure& what;
    peer to;
    clock::time_point deadline;
    const_bytes arguments;
    buffer home;
};

[[noreturn]] void cannot_post(const call_target& target, errc code, std::string_view why) {
    throw error(code, fmt::format("one-way call of \"{}\": {}", target.what->name, why));
}

}  // namespace

core_reference::core_reference(engine_core& core) noexcept : core_(core) {
    core.add_reference();
}
core_reference::~core_reference() {
    core_.drop_reference();
}

call_record::call_record(const call_target& target)
    : outgoing(&call_record::on_sent),
      arguments(&target.core->buffers()),
      core_(target.core),
      what_(target.what),
      timeout_(target.timeout),
      submit_(&call_record::run_submit, *this),
      cancel_(&call_record::run_cancel, *this) {
    to = target.to;
}

void call_record::submit() noexcept {
    deadline_ = deadline_for(*core_, timeout_);
    if (core_->on_owner()) return core_->calls().begin(*this);
    if (core_->hand_over(submit_)) return;
    why.what = {errc::closed};
    why.sentence = "this engine is stopped and takes no more calls; make a new one";
    ended_ = true;
    over();
}

void call_record::request_cancel() noexcept {
    if (core_->on_owner()) return core_->calls().cancel(*this);
    // A core that has ended has ended this call too.
    if (!core_->hand_over(cancel_)) release();
}

void call_record::run_submit(work_unit& self) noexcept {
    call_record& call = static_cast<errand&>(self).call;
    call.core_->calls().begin(call);
}

void call_record::run_cancel(work_unit& self) noexcept {
    call_record& call = static_cast<errand&>(self).call;
    call.core_->calls().cancel(call);
}

void call_record::on_sent(completion& self, status what, std::size_t) noexcept {
    auto& call = static_cast<call_record&>(self);
    call.core_->calls().sent(call, what);
}

void call_record::raise() const {
    throw error(why.what, why.sentence);
}

void waited_call::wait() {
    core_->check_may_wait();
    who_.waits_for("rpc reply");
    submit();
    who_.park();
}

buffer_pool* one_way::pool_of(const call_target& target) {
    return &target.core->buffers();
}

void one_way::send() {
    engine_core& core = *target_.core;
    if (!target_.to || target_.to.owner() != &core) {
        cannot_post(target_, errc::invalid,
                    "the peer is nobody, or of another engine; take one from engine::lookup()");
    }
    const std::size_t limit = core.max_message_bytes(target_.to);
    if (arguments.size() + target_.what->wire_text.size() + request_bytes > limit) {
        cannot_post(target_, errc::too_large,
                    fmt::format("its arguments have {} bytes, more than a message of this "
                                "transport holds ({}); send them in parts",
                                arguments.size(), limit));
    }
    core.admit(target_.to);
    const clock::time_point deadline = deadline_for(core, target_.timeout);
    if (core.on_owner()) {
        peer_state* const there = core.peers().find(target_.to);
        if (there == nullptr) {
            cannot_post(target_, errc::disconnected, "the peer is gone; look it up again");
        }
        if (!core.calls().post(*there, *target_.what, deadline, arguments.bytes())) {
            cannot_post(target_, errc::closed, "this engine is stopped; make a new one");
        }
        return;
    }
    buffer held = core.buffers().take(sizeof(handed_one_way) + arguments.size());
    std::byte* const home = held.data();
    auto* const handed = ::new (home) handed_one_way(std::move(held), target_, deadline);
    std::byte* const bytes = home + sizeof(handed_one_way);
    if (arguments.size() != 0) std::memcpy(bytes, arguments.bytes().data(), arguments.size());
    handed->arguments = {bytes, arguments.size()};
    core.handing_one_way();
    if (core.hand_over(*handed)) return;
    core.taken_over();
    handed_one_way::destroy(*handed);
    cannot_post(target_, errc::closed, "this engine is stopped; make a new one");
}

void admit(const call_target& target) {
    if (target.to && target.to.owner() == target.core) target.core->admit(target.to);
}

peer look_up(engine_core& core, std::string_view address) {
    return core.lookup(address).value();
}

}  // namespace amalgam::detail
