#include "rpc/serve/invocation.hpp"

#include <exception>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/detail/in_words.hpp>
#include <amalgam/rpc/interceptor.hpp>

#include "rpc/memory/rendezvous.hpp"
#include "rpc/serve/answer_record.hpp"
#include "rpc/serve/item_sender.hpp"
#include "rpc/serve/late_answer.hpp"
#include "rpc/serve/running_call.hpp"
#include "rpc/serve/server.hpp"
#include "rpc/statistics/statistics_table.hpp"
#include "rpc/tracing/call_span.hpp"
#include "rpc/wire/wire.hpp"

namespace amalgam::detail {

served_call::served_call(const arrived_call& call) noexcept
    : call_context(call.from, call.where, call.what.name, call.deadline, call.one_way,
                   call.provider),
      owner_(call.owner),
      what_(call.what),
      id_(call.id),
      flags_(call.flags) {}

request_extras::request_extras(const_bytes wire) : bytes(wire.begin(), wire.end()) {
    const std::uint32_t kinds = kinds_of(wire);
    const auto value_of = [&](extra key) {
        return has_kind(kinds, key) ? find_extra(wire, key) : const_bytes();
    };
    lent_to_us = to_ids(value_of(extra::loans));
    const const_bytes span = value_of(extra::trace);
    if (!span.empty()) trace = read_trace(span);
    wants_times = !value_of(extra::times).empty();
    if (wants_times || (trace && recording())) arrived = trace_time();
    const const_bytes first = value_of(extra::window);
    if (!first.empty()) window = load_le<std::uint32_t>(first.data());
    if (has_kind(kinds, extra::rendezvous)) rendezvous = rendezvous_in(wire);
}

request_extras::~request_extras() = default;

invocation::invocation(const arrived_call& call, ult_core* runs_in) noexcept
    : served_call(call), runs_in_(runs_in) {}

void invocation::keep_extras(const_bytes wire) {
    extras_ = std::make_unique<request_extras>(wire);
    extras_wire_ = extras_->bytes;
    if (extras_->trace) trace_ = &*extras_->trace;
}

void invocation::cancel() noexcept {
    // seq_cst, for handlers on another thread: either the handler sees the flag before it begins,
    // or we see that it has begun.
    set_canceled(std::memory_order_seq_cst);
    if (runs_in_ != nullptr && begun_.load(std::memory_order_seq_cst)) cancel_ult(*runs_in_);
}

void invocation::add_credit(std::uint32_t items) noexcept {
    if (item_sender* const to = items_.load(std::memory_order_acquire)) to->add_credit(items);
}

void invocation::serve() noexcept {
    if (plain) [[likely]]
        return serve_plain();
    late_ != nullptr ? serve_late() : serve_any();
}

bool invocation::waits_for_credit() const noexcept {
    const item_sender* const items = items_.load(std::memory_order_acquire);
    return items != nullptr && items->waits_for_credit();
}

/// True: canceled already.
bool invocation::begin(bool on_owner) noexcept {
    // If the handler shares the stream with cancel(), no ordering is needed. Two stores, as an
    // order that the compiler does not know is the strongest.
    if (on_owner) [[likely]] {
        begun_.store(true, std::memory_order_relaxed);
        return canceled_.load(std::memory_order_relaxed);
    }
    begun_.store(true, std::memory_order_seq_cst);
    return canceled_.load(std::memory_order_seq_cst);
}

bool invocation::is_late() const noexcept {
    return deadline_ != clock::time_point::max() && owner_.context().now() >= deadline_;
}

[[gnu::noinline]] void invocation::answer(answer_values& values, status what,
                                          std::string_view text) noexcept {
    if (!what.ok()) this->what().failures.fetch_add(1, std::memory_order_relaxed);
    waited_answer answer(*this, values);
    answer.frame(what, text);
    owner_.conclude(*this, answer);
}

[[gnu::noinline]] void invocation::answer_thrown(answer_values& values) noexcept {
    std::string text;
    status what;
    try {
        what = thrown(text);
    } catch (...) {
        what = {errc::no_memory};
    }
    owner_.context().stay_in_parent();
    answer(values, what, text);
}

[[gnu::noinline]] void invocation::answer_misfit(answer_values& values,
                                                 const archive_reader& reader) noexcept {
    std::string text;
    status what;
    try {
        what = misfit(reader, text);
    } catch (...) {
        what = {errc::no_memory};
    }
    answer(values, what, text);
}

clock::time_point invocation::start_measuring() const noexcept {
    return measured ? owner_.context().now() : clock::time_point{};
}

void invocation::stop_measuring(clock::time_point began) const noexcept {
    if (measured) [[unlikely]]
        what().took->record(owner_.context().now() - began);
}

[[gnu::noinline]] void invocation::serve_any() noexcept {
    answer_values values(&owner_.context().buffers(), &what().options.context);
    std::string text;
    status what;
    const clock::time_point began = start_measuring();
    try {
        what = run(values, text);
    } catch (...) {
        what = {errc::no_memory};
    }
    if (what.ok()) stop_measuring(began);
    release_loans();
    answer(values, what, text);
}

/// The responder answers, unless the handler never got it.
void invocation::serve_late() noexcept {
    answer_values unused(nullptr, nullptr);
    std::string text;
    status what;
    try {
        what = run(unused, text);
    } catch (...) {
        what = {errc::no_memory};
    }
    release_loans();
    if (!what.ok()) this->what().failures.fetch_add(1, std::memory_order_relaxed);
    if (!what.ok() && late_->claim()) late_->send(what, text);
    late_->handler_done();
}

status invocation::run(answer_values& into, std::string& text) {
    status what{errc::canceled};
    if ((!is_inline() && begin(owner_.context().on_owner())) || canceled()) {
        text = "canceled before it started";
    } else if (is_late()) {
        text = "the deadline passed before the call could start; the server is overloaded";
        what = {errc::timed_out};
    } else {
        const running_call mine(*this);
        const call_settings& settings = owner_.settings();
        const bool watched = !settings.interceptors(this->what().library).empty() ||
                             (settings.traced && !this->what().library) ||
                             (extras_ != nullptr && (extras_->wants_times || extras_->row));
        what = watched ? run_watched(into, text) : run_handler(into, text);
        owner_.context().stay_in_parent();
    }
    return what;
}

void invocation::release_loans() noexcept {
    if (extras_ == nullptr) return;
    for (const std::uint64_t each : extras_->lent_to_us)
        release_loan(owner_.context().core(), from_, each);
}

status invocation::run_watched(answer_values& into, std::string& text) {
    const auto& all = owner_.settings().interceptors(this->what().library);
    const clock::time_point began = owner_.context().now();
    std::optional<handler_span> span;
    const bool tells = extras_ != nullptr && extras_->wants_times;
    if (tells || (owner_.settings().traced && !this->what().library))
        span.emplace(*this, trace_, extras_ ? extras_->arrived : 0, arguments.size());
    std::size_t asked = 0;
    status what;
    try {
        for (; asked < all.size(); ++asked)
            all[asked]->serving(*this);
        what = run_handler(into, text);
    } catch (const error& refused) {
        what = refused.code();
        text = text_of(refused);
        // These codes would wrongly tell the caller that the procedure is missing or different.
        if (what.ok() || what == errc::not_found || what == errc::mismatch) what = {errc::denied};
    } catch (...) {
        failure why = thrown_there("serving() of an interceptor");
        what = why.what;
        text = std::move(why.sentence);
    }
    const clock::duration took = owner_.context().now() - began;
    if (extras_ != nullptr && extras_->row != nullptr)
        extras_->row->add_handler(what, began - extras_->came, took);
    if (span) {
        const call_times so_far = span->ends(what);
        if (tells) {
            extras_->times = so_far;
            times = &extras_->times;
        }
    }
    while (asked-- > 0) {
        try {
            all[asked]->served(*this, what, took);
        } catch (...) {
            log_thrown("served() of an interceptor", procedure());
        }
    }
    return what;
}

status invocation::get_arguments(std::string& text) {
    engine_core& core = owner_.context().core();
    large = owner_.context().buffers().take(extras_->rendezvous->key.bytes);
    const failure why = fetch_values(core, from_, *extras_->rendezvous, large);
    arguments = large.bytes();
    if (!why.what.ok()) text = "cannot fetch the arguments: " + why.sentence;
    return why.what;
}

status invocation::run_handler(answer_values& into, std::string& text) {
    try {
        if (extras_ != nullptr && extras_->rendezvous) {
            const status got = get_arguments(text);
            if (!got.ok()) return got;
        }
        engine_core& core = owner_.context().core();
        const archive_context* const seen = &what().options.context;
        const origin came{&core, from_, nullptr, lent_to_us(), seen};
        const origin goes{&core, from_, &into.lends, nullptr, seen};
        archive_reader reader(arguments, values_as(), &came);
        archive_writer writer(into.values, values_as(), &goes);
        answer_way way;
        way.late = late_;
        if (streams(what().form) && window() == 0) {
            text = "the procedure returns a stream, but the request grants no credit for values";
            return {errc::mismatch};
        }
        if (what().form == answer_form::late_items) {
            way.items = late_->items();
        } else if (what().form == answer_form::items) {
            // Credit may arrive until the call ends.
            extras_->items = std::make_unique<item_sender>(*this, extras_->window);
            way.items = extras_->items.get();
            items_.store(extras_->items.get(), std::memory_order_release);
        }
        if (what().run->invoke(reader, writer, way)) return {};
        return misfit(reader, text);
    } catch (...) {
        return thrown(text);
    }
}

status invocation::misfit(const archive_reader& reader, std::string& text) const {
    text = fmt::format("the arguments do not fit {}: {}", what().signature,
                       reader.ok() ? "trailing bytes" : reader.why());
    return {errc::mismatch};
}

/// What the handler has thrown; call while it is caught.
status invocation::thrown(std::string& text) {
    failure why = thrown_there("the handler");
    if (canceled() && why.what.handler_code() == errc::canceled) return {errc::canceled};
    // Its reader and the calls that it makes have the call's own deadline, and may see it pass
    // before the caller does.
    if (why.what.handler_code() == errc::timed_out && is_late()) return {errc::timed_out};
    text = std::move(why.sentence);
    return why.what;
}

}  // namespace amalgam::detail
