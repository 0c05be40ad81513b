#include "rpc/tracing/stream_span.hpp"

#include <new>

#include <amalgam/core/detail/recorder.hpp>

#include "rpc/tracing/call_span.hpp"

namespace amalgam::detail {

std::unique_ptr<stream_span> stream_span::begin(const trace_context* under,
                                                std::string_view procedure,
                                                const peer& with) noexcept {
    if (under == nullptr || !under->sampled || !recording()) return nullptr;
    return std::unique_ptr<stream_span>(new (std::nothrow) stream_span(*under, procedure, with));
}

stream_span::stream_span(const trace_context& under, std::string_view procedure,
                         const peer& with) noexcept
    : trace_(under.child()),
      parent_(under.span_id),
      name_(trace_text(procedure)),
      peer_(trace_text_of(with)) {
    whole_.began = whole_.ended = trace_time();
}

stream_span::~stream_span() {
    end_batch();
    record_span({.kind = span_kind::stream,
                 .begin = whole_.began,
                 .end = whole_.ended,
                 .trace = trace_.trace_id,
                 .id = trace_.span_id,
                 .parent = parent_,
                 .name = name_,
                 .peer = peer_,
                 .bytes = whole_.bytes,
                 .values = whole_.values});
}

void stream_span::add(std::size_t bytes) noexcept {
    const std::uint64_t now = trace_time();
    if (batch_.values == 0) batch_.began = now;
    for (part* each : {&whole_, &batch_}) {
        each->ended = now;
        each->bytes += bytes;
        ++each->values;
    }
}

void stream_span::end_batch() noexcept {
    if (batch_.values == 0) return;
    record_span({.kind = span_kind::values,
                 .begin = batch_.began,
                 .end = batch_.ended,
                 .trace = trace_.trace_id,
                 .id = trace_.child().span_id,
                 .parent = trace_.span_id,
                 .name = name_,
                 .peer = peer_,
                 .bytes = batch_.bytes,
                 .values = batch_.values});
    batch_ = {};
}

}  // namespace amalgam::detail
