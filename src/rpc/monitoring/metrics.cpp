#include "rpc/monitoring/metrics.hpp"

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <amalgam/fabric/extension/peer_traffic.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/engine_config.hpp>
#include <amalgam/rpc/metrics.hpp>
#include <amalgam/tasks/describe.hpp>
#include <amalgam/tasks/inspect.hpp>

#include "rpc/core/core.hpp"
#include "rpc/limits.hpp"
#include "rpc/metrics/procedure_metrics.hpp"
#include "rpc/metrics/put_metric.hpp"
#include "rpc/monitoring/wait_report.hpp"

namespace amalgam {

namespace detail {

namespace {

constexpr std::string_view metrics_name = "amalgam.metrics";

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

void write_pool(const std::string& name, const pool& which, metric_writer& into) {
    const std::vector<metric_label> labels{{"pool", name}};
    put_metric(into, {"amalgam_pool_ready_units", "Units of work that wait in a pool.", varies},
               labels, static_cast<double>(which.size()));
    put_metric(into, {"amalgam_pool_ults", "ULTs of a pool, ready, running and parked.", varies},
               labels, static_cast<double>(which.ults()));
    put_metric(
        into,
        {"amalgam_pool_taken_units_total",
         "Units of work that streams took from a pool: a ULT once for each of its turns.", grows},
        labels, static_cast<double>(which.taken()));
    for (const std::string& stream : servers_of(which)) {
        put_metric(into, {"amalgam_pool_served", "1 for each stream that serves a pool.", varies},
                   {{"pool", name}, {"stream", stream}}, 1.0);
    }
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
        write_pool(std::string(name), each, into);
    });
}

}  // namespace

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
