#include "rpc/tracing/call_span.hpp"

#include <algorithm>
#include <array>
#include <new>

#include <fmt/format.h>

#include "rpc/tracing/unit_events.hpp"

namespace amalgam::detail {

std::uint32_t trace_text_of(const peer& who) noexcept {
    if (!who) return 0;
    if (who.is_self()) return trace_text("self");
    std::array<char, 64> text;
    const auto end =
        fmt::format_to_n(text.data(), text.size(), "port {}, peer {:x}", who.port(), who.id().value)
            .out;
    return trace_text({text.data(), static_cast<std::size_t>(end - text.data())});
}

bool start_tracing() noexcept {
    const bool records = start_recording();
    if (records) record_units();
    return records || slow_call_limit() != 0;
}

trace_context new_trace() noexcept {
    trace_context fresh = trace_context::start();
    fresh.sampled = sample_new_trace();
    return fresh;
}

call_span::call_span(const trace_context& trace, const call_context* serving,
                     std::size_t bytes) noexcept
    : trace_(trace), began_(trace_time()), bytes_(bytes) {
    const trace_context* const above = serving != nullptr ? serving->trace() : nullptr;
    if (above != nullptr && above->trace_id == trace.trace_id && above->span_id != trace.span_id) {
        parent_ = above->span_id;
    }
}

void call_span::record(span_kind kind, std::string_view procedure, const peer& to, status how,
                       std::string_view address) noexcept {
    const std::uint64_t now = trace_time();
    const std::uint64_t limit = slow_call_limit();
    if (limit != 0 && kind == span_kind::call && now - began_ >= limit) {
        log_slow_call({procedure, address, how, left_ != 0 ? left_ - began_ : 0, now - began_,
                       there_, trace_});
    }
    if (!trace_.sampled) return;
    record_span({.kind = kind,
                 .begin = began_,
                 .middle = left_,
                 .end = now,
                 .trace = trace_.trace_id,
                 .id = trace_.span_id,
                 .parent = parent_,
                 .name = trace_text(procedure),
                 .peer = address.empty() ? trace_text_of(to) : trace_text(address),
                 .bytes = bytes_,
                 .code = how.code});
}

handler_span::handler_span(const call_context& call, const trace_context*& trace,
                           std::uint64_t arrived, std::size_t bytes) noexcept
    : call_(call), trace_(trace), arrived_(arrived), began_(trace_time()), bytes_(bytes) {
    if (trace_ == nullptr) trace_ = &own_.emplace(new_trace());
}

call_times handler_span::ends(status how) noexcept {
    how_ = how;
    return {arrived_ != 0 && arrived_ < began_ ? began_ - arrived_ : 0, trace_time() - began_};
}

handler_span::~handler_span() {
    if (trace_->sampled) {
        record_span({.kind = span_kind::handler,
                     .begin = arrived_ != 0 ? std::min(arrived_, began_) : began_,
                     .middle = began_,
                     .end = trace_time(),
                     .trace = trace_->trace_id,
                     .id = trace_->span_id,
                     .parent = own_ ? trace_->span_id : decltype(span_record::parent){},
                     .name = trace_text(call_.procedure()),
                     .peer = trace_text_of(call_.from()),
                     .bytes = bytes_,
                     .code = how_.code});
    }
    if (own_) trace_ = nullptr;
}

const trace_context* trace_of_handler() noexcept {
    const call_context* const serving = call_context::try_current();
    return serving != nullptr ? serving->trace() : nullptr;
}

std::unique_ptr<transfer_span> transfer_span::begin(const trace_context* under) noexcept {
    if (under != nullptr && !under->sampled) return nullptr;
    std::unique_ptr<transfer_span> fresh(new (std::nothrow) transfer_span);
    if (fresh == nullptr) return nullptr;
    fresh->began_ = trace_time();
    if (under != nullptr) {
        fresh->trace_ = under->child();
        fresh->parent_ = under->span_id;
    }
    return fresh;
}

void transfer_span::end(bool is_put, std::uint64_t bytes, const peer& with,
                        status how) const noexcept {
    record_span({.kind = span_kind::transfer,
                 .begin = began_,
                 .middle = 0,
                 .end = trace_time(),
                 .trace = trace_ ? trace_->trace_id : decltype(span_record::trace){},
                 .id = trace_ ? trace_->span_id : decltype(span_record::id){},
                 .parent = parent_,
                 .name = trace_text(is_put ? "put" : "get"),
                 .peer = trace_text_of(with),
                 .bytes = bytes,
                 .code = how.code});
}

}  // namespace amalgam::detail
