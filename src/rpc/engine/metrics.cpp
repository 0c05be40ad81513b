#include "rpc/engine/metrics.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <amalgam/core/counter.hpp>
#include <amalgam/fabric/extension/peer_traffic.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/engine_config.hpp>
#include <amalgam/rpc/metrics.hpp>
#include <amalgam/tasks/inspect.hpp>

#include "rpc/engine/core.hpp"
#include "rpc/engine/procedure_metrics.hpp"
#include "rpc/engine/put_metric.hpp"
#include "rpc/engine/wait_report.hpp"
#include "rpc/limits.hpp"

namespace amalgam {

namespace detail {

namespace {

constexpr std::string_view metrics_name = "amalgam.metrics";

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
     "One-way calls not sent because the peer was gone by then."},
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

/// Of `who`: a peer, or all peers of a port.
void write_traffic(const std::string& prefix, const std::string& who, const peer_traffic& moved,
                   const std::vector<metric_label>& labels, metric_writer& into) {
    const auto write = [&](const char* name, const char* help, std::uint64_t value,
                           const char* unit = "") {
        put_metric(into, {prefix + name, help + who + ".", grows, unit}, labels,
                   static_cast<double>(value));
    };
    write("_sent_messages_total", "Messages sent to ", moved.sent_messages);
    write("_sent_bytes_total", "Bytes of messages sent to ", moved.sent_bytes, "bytes");
    write("_received_messages_total", "Messages received from ", moved.received_messages);
    write("_received_bytes_total", "Bytes of messages received from ", moved.received_bytes,
          "bytes");
    write("_put_bytes_total", "Bytes of puts posted here to memory of ", moved.put_bytes, "bytes");
    write("_got_bytes_total", "Bytes of gets posted here from memory of ", moved.got_bytes,
          "bytes");
}

void write_peer(const std::string& address, const peer_state& each, const traffic_counts* counts,
                metric_writer& into) {
    const std::vector<metric_label> labels{{"peer", address}};
    if (counts != nullptr) {
        write_traffic("amalgam_rpc_peer", "a peer", counts->traffic_with(each.name.id()), labels,
                      into);
    }
    put_metric(
        into,
        {"amalgam_rpc_peer_queued_messages", "Messages to a peer that wait for room.", varies},
        labels, static_cast<double>(each.queued));
    put_metric(into,
               {"amalgam_rpc_peer_unread_bytes", "Answers queued for a peer.", varies, "bytes"},
               labels, static_cast<double>(each.unread_bytes));
    put_metric(into,
               {"amalgam_rpc_peer_running_one_way_handlers",
                "One-way calls of a peer being served now.", varies},
               labels, static_cast<double>(each.one_ways));
}

void write_calls(engine_core& core, metric_writer& into) {
    const caller& calls = core.caller();
    put_metric(into, {"amalgam_rpc_calls_pending", "Calls made that have not ended.", varies}, {},
               static_cast<double>(calls.pending()));
    const auto& failed = calls.counts().failed_by;
    for (std::size_t code = 1; code < failed.size(); ++code) {
        if (failed[code].value() == 0) continue;
        put_metric(into,
                   {"amalgam_rpc_call_failures_total", "Calls that ended without a value, by code.",
                    grows},
                   {{"code", std::string(name(static_cast<errc>(code)))}},
                   static_cast<double>(failed[code].value()));
    }
    core.procedures().for_each(
        [&](const counted_procedure& each) { write_called_procedure(each, into); });
    calls.for_each_measured([&](std::uint32_t index, const latency_histogram& took) {
        const std::string name = core.procedures().name_of(index);
        into.add(
            {"amalgam_rpc_call_seconds",
             fmt::format(
                 "Time of calls made until they ended; of frequent calls, one in {} is measured.",
                 limits::measured_call_in),
             metric_kind::latency, "seconds"},
            {{"procedure", name}}, took.snapshot());
    });
}

void write_stream(execution_stream& which, metric_writer& into) {
    const std::vector<metric_label> labels{{"stream", std::string(which.name())}};
    put_metric(into,
               {"amalgam_stream_cpu_seconds_total", "Processor time of a stream's thread.", grows,
                "seconds"},
               labels, std::chrono::duration<double>(which.cpu_time()).count());
    put_metric(into,
               {"amalgam_stream_asleep", "Whether a stream sleeps until there is work.", varies},
               labels, which.state() == stream_state::asleep ? 1.0 : 0.0);
    const stream_activity did = activity_of(which);
    const auto seconds = [](std::chrono::nanoseconds time) {
        return std::chrono::duration<double>(time).count();
    };
    put_metric(into,
               {"amalgam_stream_idle_seconds_total",
                "Time that a stream slept because nothing was ready.", grows, "seconds"},
               labels, seconds(did.asleep));
    put_metric(into, {"amalgam_stream_sleeps_total", "How often a stream went to sleep.", grows},
               labels, static_cast<double>(did.sleeps));
    put_metric(into,
               {"amalgam_stream_steals_total", "Units that a stream took from the pools of others.",
                grows},
               labels, static_cast<double>(did.steals));
    put_metric(into,
               {"amalgam_stream_longest_hold_seconds",
                "The longest time that others had no turn on a stream, so far.", varies, "seconds"},
               labels, seconds(did.longest_hold));
}

/// What peers can make the engine hold, beside what it holds. Those without a bound are left out.
void write_limits(engine_core& core, metric_writer& into) {
    const engine_options now = core.configuration().options;
    const auto write = [&](const char* name, const char* help, std::size_t limit,
                           const char* unit = "") {
        constexpr std::size_t endless = std::size_t{1} << 53;
        if (limit < endless)
            put_metric(into, {name, help, varies, unit}, {}, static_cast<double>(limit));
    };
    write("amalgam_rpc_running_handlers_limit",
          "Calls that may be served at once; see amalgam_rpc_running_handlers.", now.max_running);
    write("amalgam_rpc_running_one_way_handlers_limit",
          "One-way calls that may be served at once; see amalgam_rpc_running_one_way_handlers.",
          now.max_one_ways);
    write("amalgam_rpc_peer_queued_messages_limit",
          "Messages to a peer that may wait for room; see amalgam_rpc_peer_queued_messages.",
          now.max_queued);
    write("amalgam_rpc_unread_bytes_limit",
          "Answers that may be queued for all peers; see amalgam_rpc_unread_bytes.",
          now.max_unread_bytes_total, "bytes");
    write("amalgam_rpc_borrowed_bytes_limit",
          "Bytes that may be kept for all peers; see amalgam_rpc_borrowed_bytes.",
          now.max_borrowed_bytes_total, "bytes");
    write("amalgam_rpc_reader_bytes_limit",
          "Bytes that may be granted to callers; see amalgam_rpc_reader_bytes.",
          now.max_reader_bytes, "bytes");
}

/// What this engine asked a port for.
void write_work_at(engine_core& core, std::size_t port, metric_writer& into) {
    const std::vector<metric_label> labels{{"port", core.port_addresses()[port]},
                                           {"transport", std::string(core.can(port).transport)}};
    const one_sided_counts& moved = core.transfers().counts_at(port);
    const registered_memory memory = core.exposures().registered_at(port);
    const auto write = [&](const char* name, const char* help, metric_kind kind,
                           std::uint64_t value, const char* unit = "") {
        put_metric(into, {name, help, kind, unit}, labels, static_cast<double>(value));
    };
    write("amalgam_port_puts_total", "Puts posted to a port; large ones in pieces.", grows,
          moved.puts);
    write("amalgam_port_gets_total", "Gets posted to a port; large ones in pieces.", grows,
          moved.gets);
    write("amalgam_port_retries_total",
          "Messages, puts and gets that a port had no room for, and that were posted again.", grows,
          core.outbox().retries(port) + moved.retries);
    write("amalgam_port_registrations_total", "Pieces of memory registered with a port, so far.",
          grows, memory.so_far);
    write("amalgam_port_registered_regions", "Pieces of memory registered with a port now.", varies,
          memory.regions);
    write("amalgam_port_registered_bytes", "Bytes of memory registered with a port now.", varies,
          memory.bytes, "bytes");
}

void write_on_stream(engine_core& core, metric_writer& into) {
    write_calls(core, into);
    write_limits(core, into);
    put_metric(into,
               {"amalgam_rpc_open_value_streams",
                "Streams of values that calls of this engine send to handlers.", varies},
               {}, static_cast<double>(core.value_streams().open()));
    for (std::size_t i = 0; i < core.ports(); ++i) {
        if (const traffic_counts* const counts = core.traffic_at(i)) {
            write_traffic("amalgam_port", "peers", counts->traffic(),
                          {{"port", core.port_addresses()[i]},
                           {"transport", std::string(core.can(i).transport)}},
                          into);
        }
    }
    for (std::size_t i = 0; i < core.ports(); ++i)
        write_work_at(core, i, into);
    for (std::size_t i = 0; i < core.streams().count(); ++i)
        write_stream(core.streams().at(i), into);
    core.server().procedures().for_each(
        [&](const served_procedure& each) { write_served_procedure(each, into); });
    std::size_t peers = 0;
    core.peers().for_each([&](peer_state& each) {
        // Addresses cost time on the stream: bounded as the labels are.
        if (each.name.is_self() || ++peers > metric_limits{}.label_sets) return;
        write_peer(core.peer_addresses().address_of(each.name), each,
                   core.traffic_at(each.name.port()), into);
    });
    put_metric(into, {"amalgam_rpc_peers", "Peers known, connected or being looked up.", varies},
               {}, static_cast<double>(peers));
    core.streams().for_each_pool([&](std::string_view name, const pool& each) {
        const std::vector<metric_label> labels{{"pool", std::string(name)}};
        put_metric(into, {"amalgam_pool_ready_units", "Units of work that wait in a pool.", varies},
                   labels, static_cast<double>(each.size()));
        put_metric(into,
                   {"amalgam_pool_ults", "ULTs of a pool, ready, running and parked.", varies},
                   labels, static_cast<double>(each.ults()));
    });
}

}  // namespace

void write_counters(const std::vector<counter_value>& all, metric_writer& into) {
    for (const counter_value& each : all)
        write_counter(each, into);
}

void write_port(const port& which, const std::string& address, metric_writer& into) {
    const std::vector<metric_label> labels{{"port", address},
                                           {"transport", std::string(which.can().transport)}};
    const port_usage used = which.usage();
    put_metric(
        into,
        {"amalgam_port_queued_bytes",
         "Messages of a port not taken yet, and large ones still arriving.", varies, "bytes"},
        labels, static_cast<double>(used.queued_bytes));
    into.add(
        {"amalgam_port_pooled_bytes", "Free memory that a port keeps for reuse.", varies, "bytes"},
        labels, static_cast<double>(used.pooled_bytes));
    put_metric(into,
               {"amalgam_port_evicted_total",
                "Connections of a port ended because a bound was exceeded.", grows},
               labels, static_cast<double>(used.evicted));
    const amalgam::transfer_counts moved = which.transfers();
    put_metric(into,
               {"amalgam_port_direct_transfers_total",
                "Puts and gets carried out by library, device or kernel.", grows},
               labels, static_cast<double>(moved.direct));
    into.add(
        {"amalgam_port_direct_transfer_bytes_total", "Bytes that these moved.", grows, "bytes"},
        labels, static_cast<double>(moved.direct_bytes));
    put_metric(into,
               {"amalgam_port_served_transfers_total",
                "Puts and gets of peers that the port's progress answered.", grows},
               labels, static_cast<double>(moved.served));
}

metric_snapshot read_metrics(engine_core& core) {
    metric_writer all;
    core.metrics().write_to(all);
    try {
        if (!core.is_stopped()) core.on_stream([&] { write_on_stream(core, all); });
    } catch (const error& why) {
        if (why.code() != errc::closed) throw;  // It ended meanwhile.
    }
    try {
        write_process_metrics(all);
    } catch (const error&) {  // A name is taken.
        all.add_failure();
    }
    return all.take();
}

}  // namespace detail

metric_registry& metrics_of(engine& here) {
    return here.core().metrics();
}

metric_snapshot read_metrics(engine& here) {
    return detail::read_metrics(here.core());
}

metric_snapshot read_metrics(engine& here, const peer& there, std::chrono::nanoseconds timeout) {
    try {
        return here.procedure<metric_snapshot()>(detail::metrics_name).on(there).within(timeout)();
    } catch (const error& why) {
        if (why.code() != errc::not_found) throw;
        throw error(errc::not_found,
                    fmt::format("{} does not offer its metrics; to offer them, call "
                                "am::offer_metrics(engine) there",
                                there.address()));
    }
}

void offer_metrics(engine& here, std::optional<allow_list> to) {
    here.define(detail::library_name{detail::metrics_name},
                [&core = here.core()] { return detail::read_metrics(core); }, {.allow = to});
    detail::define_waits(here, to);
    detail::define_ults(here, to);
}

}  // namespace amalgam
