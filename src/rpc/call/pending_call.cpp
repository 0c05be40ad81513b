#include "rpc/call/pending_call.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/detail/in_words.hpp>
#include <amalgam/core/detail/printable.hpp>

#include "rpc/call/caller.hpp"
#include "rpc/wire/wire.hpp"

namespace amalgam::detail {

pending_call::pending_call(call_record& whose, const call_target& target) noexcept
    : outgoing(&pending_call::on_sent, target.to, target.urgent),
      record(whose),
      what(target.what),
      provider(target.provider),
      xdr(target.as == encoding::xdr) {}

void pending_call::dress(const call_context* serving) {
    caller& by = caller_of(*record.core_);
    const call_target& target = *record.target_;
    const const_bytes arguments = record.arguments.bytes();
    extras = std::make_unique<call_extras>();
    extras->context = target.context;
    extras->wire = dress_call(by.settings(), target, false, deadline, serving);
    extras->watched = !by.settings().interceptors(what->library).empty();
    extras->counted = by.settings().counted && !what->library;
    if (extras->watched || extras->counted) extras->began = by.context().now();
    extras->span = span_of(by.settings(), extras->wire, serving, arguments.size());
    if (extras->span && slow_call_limit() != 0)
        add_extra(extras->wire, extra::times, std::array<std::byte, call_times::wire_bytes>{});
    if (!record.loans_.empty()) add_loans(extras->wire, record.loans_);
    if (record.window != 0) {
        std::byte items[8] = {};
        store_le(items, record.window);
        add_extra(extras->wire, extra::window, items);
        if (serving != nullptr && !counted(*what).read_by.empty())
            extras->values = stream_span::begin(serving->trace(), counted(*what).read_by, to);
    }
    if (arguments.size() > by.outbox().eager_bytes(to)) {
        to = by.way_now(to);
        const remote_key& key = expose_arguments();
        add_rendezvous(extras->wire, key, arguments, by.settings().checksums);
    }
    tell_parent(extras->wire, by.settings(), *what, serving);
    if (target.attempts == 1) return;
    extras->attempts_left = target.attempts - 1u;
    extras->pause = target.pause;
    extras->address = by.looked_up_at(to);
}

const remote_key& pending_call::expose_arguments() {
    const const_bytes values = record.arguments.bytes();
    const mutable_bytes all(const_cast<std::byte*>(values.data()), values.size());
    extras->arguments =
        std::make_unique<exposure>(*record.core_, scatter(&all, 1), access::read, to);
    return extras->arguments->key(to.port());
}

void pending_call::show_arguments() {
    const auto key = expose_arguments().encode();
    const const_bytes old_key = find_extra(extras->wire, extra::rendezvous);
    std::copy(key.begin(), key.end(), const_cast<std::byte*>(old_key.data()));
}

void pending_call::refuse(const failure& wrong) noexcept {
    if (extras != nullptr && extras->watched) {
        caller& by = caller_of(*record.core_);
        tell_called(by.settings(), *what, to, wrong.what, by.context().now() - extras->began);
    }
    if (extras != nullptr && extras->span) extras->span->end(what->name, to, wrong.what);
    record.why = in_words(wrong.what, [&] {
        return fmt::format("call of \"{}\": {}", printable_name(what->name), wrong.sentence);
    });
    ended = true;
    record.over();
}

void pending_call::run_submit(work_unit& self) noexcept {
    pending_call& call = static_cast<posted_task&>(self).call;
    caller& by = caller_of(*call.record.core_);
    by.taken_back();
    by.begin(call);
}

void pending_call::run_cancel(work_unit& self) noexcept {
    pending_call& call = static_cast<posted_task&>(self).call;
    caller_of(*call.record.core_).cancel(call);
}

void pending_call::on_sent(completion& self, status how, std::size_t) noexcept {
    auto& call = static_cast<pending_call&>(self);
    caller_of(*call.record.core_).sent(call, how);
}

}  // namespace amalgam::detail
