#include "rpc/metrics/counter_metrics.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "rpc/metrics/put_metric.hpp"

namespace amalgam::detail {

namespace {

/// A counter of an engine, as a metric.
struct named_counter {
    std::string_view counter;
    std::string_view metric;
    metric_kind kind;
    std::string_view unit;
    std::string_view help;
};

constexpr std::array<named_counter, 34> named_counters{{
    {"rpc.calls", "rpc_calls_total", grows, "", "Calls started that expect an answer."},
    {"rpc.one_ways", "rpc_one_way_calls_total", grows, "", "One-way calls sent."},
    {"rpc.one_ways_lost", "rpc_one_way_calls_lost_total", grows, "",
     "One-way calls not sent because the peer, or memory, was gone by then."},
    {"rpc.one_ways_refused", "rpc_one_way_calls_refused_total", grows, "",
     "One-way calls refused by the peer."},
    {"rpc.retried", "rpc_retries_total", grows, "", "Further attempts of calls."},
    {"rpc.failed", "", varies, "", ""},  // By code: see write_calls().
    {"rpc.timed_out", "rpc_calls_timed_out_total", grows, "", "Calls ended by their deadline."},
    {"rpc.late_replies", "rpc_late_replies_total", grows, "",
     "Replies to calls that had ended; dropped."},
    {"rpc.running", "rpc_running_handlers", varies, "",
     "Calls being served now, including those that are answered later."},
    {"rpc.running_one_ways", "rpc_running_one_way_handlers", varies, "",
     "One-way calls being served now."},
    {"rpc.unread_bytes", "rpc_unread_bytes", varies, "bytes",
     "Answers queued for peers that do not read."},
    {"rpc.lent", "rpc_lent_values", varies, "",
     "Large values kept for peers that have not fetched them."},
    {"rpc.borrowed_bytes", "rpc_borrowed_bytes", varies, "bytes",
     "Bytes of results kept for peers that have not fetched them."},
    {"rpc.taken_back", "rpc_taken_back_total", grows, "",
     "Peers disconnected for holding too much."},
    {"rpc.reader_bytes", "rpc_reader_bytes", varies, "bytes",
     "Bytes granted for values that callers send ahead of the handlers that read them."},
    {"rpc.served", "rpc_served_total", grows, "", "Calls passed to a handler."},
    {"rpc.refused", "rpc_refused_total", grows, "", "Requests passed to no handler."},
    {"rpc.overloaded", "rpc_overloaded_total", grows, "",
     "Requests refused because too many were running."},
    {"rpc.denied", "rpc_denied_total", grows, "",
     "Requests refused because the caller is not on the allow list."},
    {"rpc.cut_off", "rpc_cut_off_total", grows, "",
     "Peers disconnected because they did not read their answers."},
    {"rpc.canceled", "rpc_canceled_total", grows, "", "Cancels that found their call running."},
    {"rpc.transfers", "rpc_transfers_total", grows, "", "Puts and gets of bulk memory."},
    {"rpc.transfers_failed", "rpc_transfers_failed_total", grows, "",
     "Puts and gets of bulk memory that failed."},
    {"rpc.transferred_bytes", "rpc_transferred_bytes_total", grows, "bytes",
     "Bytes that puts and gets of bulk memory moved."},
    {"rpc.malformed", "rpc_malformed_total", grows, "", "Messages that broke the protocol."},
    {"rpc.corrupt", "rpc_corrupt_total", grows, "", "Values that did not match their checksum."},
    {"rpc.peers_lost", "rpc_peers_lost_total", grows, "", "Peers lost."},
    {"rpc.untold", "rpc_untold_total", grows, "",
     "Connections ended because there was no memory to answer."},
    {"rpc.pings", "rpc_pings_total", grows, "", "Pings sent to silent peers."},
    {"rpc.pings_unanswered", "rpc_pings_unanswered_total", grows, "",
     "Peers disconnected because they did not answer a ping."},
    // By port: see write_port().
    {"ports.queued_bytes", "", varies, "", ""},
    {"ports.pooled_bytes", "", varies, "", ""},
    {"ports.evicted", "", varies, "", ""},
    {"inject.runs", "inject_runs_total", grows, "", "Runs of injected code."},
}};

constexpr std::array<std::string_view, 3> counting_layers{"inject.", "directory.", "context."};

void write_counter(const counter_value& one, metric_writer& into) {
    const auto value = static_cast<double>(one.value);
    const auto known = std::find_if(named_counters.begin(), named_counters.end(),
                                    [&](const auto& each) { return each.counter == one.name; });
    if (known != named_counters.end()) {
        if (known->metric.empty()) return;
        put_metric(into,
                   {fmt::format("amalgam_{}", known->metric), std::string(known->help), known->kind,
                    std::string(known->unit)},
                   {}, value);
        return;
    }
    std::string name = one.name;
    for (char& c : name) {
        const bool fits =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
        if (!fits) c = '_';
    }
    const bool ours =
        std::any_of(counting_layers.begin(), counting_layers.end(),
                    [&](std::string_view layer) { return one.name.starts_with(layer); });
    if (ours) {
        into.add(
            {fmt::format("amalgam_{}_total", name),
             fmt::format("Counter {} of the engine; see the guide to logging.", one.name), grows},
            {}, value);
    } else {
        put_metric(into,
                   {name.empty() || (name[0] >= '0' && name[0] <= '9') ? "_" + name : name,
                    "A counter of the program's own.", varies},
                   {}, value);
    }
}

}  // namespace

void write_counters(const std::vector<counter_value>& all, metric_writer& into) {
    for (const counter_value& each : all)
        write_counter(each, into);
}

}  // namespace amalgam::detail
