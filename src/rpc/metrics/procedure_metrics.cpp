#include "rpc/metrics/procedure_metrics.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "rpc/limits.hpp"
#include "rpc/metrics/put_metric.hpp"

namespace amalgam::detail {

namespace {

struct streams_seen {
    std::uint64_t begun = 0;
    std::uint64_t open = 0;
};

void write_streams(streams_seen seen, const stream_counts& what,
                   const std::vector<metric_label>& labels, metric_writer& into) {
    put_metric(into,
               {"amalgam_rpc_open_streams", "Streams of values of a procedure open now.", varies},
               labels, static_cast<double>(seen.open));
    put_metric(into,
               {"amalgam_rpc_streams_total", "Streams of values of a procedure, so far.", grows},
               labels, static_cast<double>(seen.begun));
    put_metric(into,
               {"amalgam_rpc_stream_values_total",
                "Values that passed through a procedure's streams.", grows},
               labels, static_cast<double>(what.values));
    put_metric(into,
               {"amalgam_rpc_stream_bytes_total", "Bytes of the values of a procedure's streams.",
                grows, "bytes"},
               labels, static_cast<double>(what.bytes));
    if (labels.back().value != "sent") return;
    put_metric(
        into,
        {"amalgam_rpc_stream_credit_waits_total",
         "Values of a procedure's streams that waited for the reader to take others first.", grows},
        labels, static_cast<double>(what.credit_waits.load(std::memory_order_relaxed)));
}

/// Of a caller, or of a handler that reads what its callers send.
void write_streams_of(const counted_procedure& each, metric_writer& into) {
    const bool is_handler = !each.read_by.empty();
    for (const bool sent : {false, true}) {
        const stream_counts& what = sent ? each.sent_values : each.received_values;
        const std::uint64_t ended = what.ended.load(std::memory_order_relaxed);
        const std::uint64_t begun = what.begun.load(std::memory_order_relaxed);
        if (begun == 0) continue;
        write_streams({begun, begun - std::min(ended, begun)}, what,
                      {{"procedure", is_handler ? each.read_by : each.name},
                       {"end", is_handler ? "handler" : "caller"},
                       {"direction", sent ? "sent" : "received"}},
                      into);
    }
}

}  // namespace

void write_called_procedure(const counted_procedure& each, metric_writer& into) {
    if (!each.library || !each.read_by.empty()) write_streams_of(each, into);
    if (each.library) return;
    const std::vector<metric_label> labels{{"procedure", each.name}};
    put_metric(into,
               {"amalgam_rpc_call_sent_bytes_total",
                "Bytes of the arguments of calls made, also of those made again.", grows, "bytes"},
               labels, static_cast<double>(each.sent_bytes));
    put_metric(
        into,
        {"amalgam_rpc_call_received_bytes_total",
         "Bytes of the results of calls made; of streams see amalgam_rpc_stream_bytes_total.",
         grows, "bytes"},
        labels, static_cast<double>(each.received_bytes));
}

void write_served_procedure(const served_procedure& each, metric_writer& into) {
    if (each.library) return;
    const std::vector<metric_label> labels{{"procedure", each.name},
                                           {"provider", std::to_string(each.options.provider)}};
    put_metric(into,
               {"amalgam_rpc_handled_total", "Calls passed to the handler of a procedure.", grows},
               labels, static_cast<double>(each.calls()));
    put_metric(into,
               {"amalgam_rpc_handler_failures_total",
                "Calls of which the handler of a procedure failed; without failures told by a "
                "responder.",
                grows},
               labels, static_cast<double>(each.failures.load(std::memory_order_relaxed)));
    put_metric(into,
               {"amalgam_rpc_handlers_running", "Calls of a procedure being served now.", varies},
               labels, static_cast<double>(each.running));
    put_metric(
        into,
        {"amalgam_rpc_handler_received_bytes_total",
         "Bytes of the arguments of calls passed to the handler of a procedure.", grows, "bytes"},
        labels, static_cast<double>(each.received_bytes()));
    put_metric(
        into,
        {"amalgam_rpc_handler_sent_bytes_total",
         "Bytes of the results of a procedure; of streams see amalgam_rpc_stream_bytes_total.",
         grows, "bytes"},
        labels, static_cast<double>(each.sent_bytes()));
    if (streams(each.form)) {
        write_streams({.begun = each.calls(), .open = each.running}, each.sent_values,
                      {{"procedure", each.name}, {"end", "handler"}, {"direction", "sent"}}, into);
    }
    if (each.took != nullptr) {
        into.add(
            {"amalgam_rpc_handler_seconds",
             fmt::format(
                 "Time in the handler of a procedure; of frequent calls, one in {} is measured.",
                 limits::measured_call_in),
             metric_kind::latency, "seconds"},
            labels, each.took->snapshot());
    }
}

}  // namespace amalgam::detail
