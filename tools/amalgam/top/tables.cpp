#include "top/tables.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "call/shown.hpp"

namespace amalgam::tool {
namespace {

top_cell text(std::string_view what) {
    return {shown(std::string(what)), 0};
}
/// A peer may tell, or make by what it tells, a number that is none.
double finite(double what) {
    return std::isfinite(what) ? what : 0;
}
top_cell number(double what) {
    return {{}, finite(what)};
}

/// No more than writers of ours tell: rows are looked up in each other.
void bound(metric_snapshot& all) {
    constexpr std::size_t most = metric_limits{}.label_sets;
    for (metric_family& each : all.families)
        if (each.samples.size() > most)
            each.samples.erase(each.samples.begin() + static_cast<std::ptrdiff_t>(most),
                               each.samples.end());
}

std::string label(const metric_sample& of, std::string_view name) {
    for (const metric_label& each : of.labels)
        if (each.name == name) return each.value;
    return {};
}

const metric_sample* sample_of(const metric_snapshot& all, std::string_view name,
                               const std::vector<metric_label>& labels) {
    const metric_family* const family = all.find(name);
    if (family == nullptr) return nullptr;
    for (const metric_sample& each : family->samples)
        if (each.labels == labels) return &each;
    return nullptr;
}

/// Those of all times, since few are measured in one interval.
double quantile(const metric_snapshot& all, std::string_view name,
                const std::vector<metric_label>& labels, double q) {
    const metric_sample* const found = sample_of(all, name, labels);
    if (found == nullptr) return 0;
    return std::chrono::duration<double>(found->latency.quantile(q)).count();
}

double mean(const metric_snapshot& all, std::string_view name,
            const std::vector<metric_label>& labels) {
    const metric_sample* const found = sample_of(all, name, labels);
    return found == nullptr ? 0 : std::chrono::duration<double>(found->latency.mean()).count();
}

const std::vector<metric_sample>& samples(const metric_snapshot& all, std::string_view name) {
    static const std::vector<metric_sample> none;
    const metric_family* const found = all.find(name);
    return found == nullptr ? none : found->samples;
}

/// Names of the streams that serve a pool.
std::string servers_of(const metric_snapshot& all, const std::string& pool) {
    std::string names;
    for (const metric_sample& each : samples(all, "amalgam_pool_served")) {
        if (label(each, "pool") != pool) continue;
        if (!names.empty()) names += ", ";
        names += label(each, "stream");
    }
    return names;
}

}  // namespace

void top_model::take(numbers_told told, clock::time_point now) {
    const bool first = now_.processes.empty() && !now_.run;
    for (numbers_told::process& each : told.processes)
        bound(each.numbers);
    before_ = std::exchange(now_, std::move(told));
    seconds_ = first ? 0 : std::chrono::duration<double>(now - at_).count();
    at_ = now;
    if (has_rates()) add_to_curves();
}

std::vector<top_model::seen> top_model::all_seen() const {
    std::vector<seen> all;
    for (const numbers_told::process& each : now_.processes) {
        const auto old = std::find_if(before_.processes.begin(), before_.processes.end(),
                                      [&](const auto& one) { return one.name == each.name; });
        all.push_back(
            {each.name, &each.numbers, old == before_.processes.end() ? nullptr : &old->numbers});
    }
    return all;
}

double top_model::rate(const seen& of, const std::string& name,
                       const std::vector<metric_label>& labels) const {
    if (!has_rates() || of.before == nullptr) return 0;
    const metric_sample* const now = sample_of(*of.now, name, labels);
    const metric_sample* const before = sample_of(*of.before, name, labels);
    if (now == nullptr) return 0;
    // One that was started again has begun at 0.
    return std::max(0.0, now->value - (before == nullptr ? 0 : before->value)) / seconds_;
}

double top_model::total_rate(const seen& of, const std::string& name) const {
    double all = 0;
    for (const metric_sample& each : samples(*of.now, name))
        all += rate(of, name, each.labels);
    return all;
}

top_table top_model::processes() const {
    top_table all{"processes",
                  {{"process", shown_as::text},
                   {"where", shown_as::text},
                   {"cpu", shown_as::percent},
                   {"memory", shown_as::bytes},
                   {"threads", shown_as::count},
                   {"served/s", shown_as::rate},
                   {"calls/s", shown_as::rate},
                   {"moved/s", shown_as::bytes}},
                  2,
                  {}};
    for (const seen& each : all_seen()) {
        std::string where;
        if (now_.run)
            for (const process_status& one : now_.run->processes)
                if (one.label == each.name)
                    where = !one.running ? "ended" : one.answered ? one.where : one.where + " ?";
        all.rows.push_back({text(each.name), text(where),
                            number(rate(each, "process_cpu_seconds_total")),
                            number(each.now->value("process_resident_memory_bytes")),
                            number(each.now->value("process_threads")),
                            number(rate(each, "amalgam_rpc_served_total")),
                            number(rate(each, "amalgam_rpc_calls_total")),
                            number(rate(each, "amalgam_rpc_transferred_bytes_total"))});
    }
    return all;
}

top_table top_model::procedures() const {
    top_table all{"procedures",
                  {{"procedure", shown_as::text},
                   {"process", shown_as::text},
                   {"busy", shown_as::percent},
                   {"calls/s", shown_as::rate},
                   {"failed/s", shown_as::rate},
                   {"running", shown_as::count},
                   {"50 %", shown_as::time},
                   {"99 %", shown_as::time},
                   {"in/s", shown_as::bytes},
                   {"out/s", shown_as::bytes}},
                  2,
                  {}};
    for (const seen& each : all_seen()) {
        for (const metric_sample& one : samples(*each.now, "amalgam_rpc_handled_total")) {
            const double calls = rate(each, "amalgam_rpc_handled_total", one.labels);
            const auto& labels = one.labels;
            std::string name = label(one, "procedure");
            if (const std::string provider = label(one, "provider"); provider != "0")
                name += "@" + provider;
            all.rows.push_back(
                {text(name), text(each.name),
                 number(calls * mean(*each.now, "amalgam_rpc_handler_seconds", labels)),
                 number(calls), number(rate(each, "amalgam_rpc_handler_failures_total", labels)),
                 number(each.now->value("amalgam_rpc_handlers_running", labels)),
                 number(quantile(*each.now, "amalgam_rpc_handler_seconds", labels, 0.5)),
                 number(quantile(*each.now, "amalgam_rpc_handler_seconds", labels, 0.99)),
                 number(rate(each, "amalgam_rpc_handler_received_bytes_total", labels)),
                 number(rate(each, "amalgam_rpc_handler_sent_bytes_total", labels))});
        }
    }
    return all;
}

top_table top_model::values() const {
    top_table all{"values",
                  {{"procedure", shown_as::text},
                   {"process", shown_as::text},
                   {"here", shown_as::text},
                   {"values/s", shown_as::rate},
                   {"bytes/s", shown_as::bytes},
                   {"open", shown_as::count},
                   {"waits/s", shown_as::rate},
                   {"streams", shown_as::count}},
                  3,
                  {}};
    for (const seen& each : all_seen()) {
        for (const metric_sample& one : samples(*each.now, "amalgam_rpc_streams_total")) {
            const auto grew = [&](const std::string& name) {
                return number(rate(each, "amalgam_rpc_stream_" + name + "_total", one.labels));
            };
            const metric_sample* const open =
                sample_of(*each.now, "amalgam_rpc_open_streams", one.labels);
            all.rows.push_back({text(label(one, "procedure")), text(each.name),
                                text(label(one, "end") + " " + label(one, "direction")),
                                grew("values"), grew("bytes"),
                                number(open == nullptr ? 0 : open->value), grew("credit_waits"),
                                number(one.value)});
        }
    }
    return all;
}

top_table top_model::ports() const {
    top_table all{"ports",
                  {{"port", shown_as::text},
                   {"process", shown_as::text},
                   {"sent/s", shown_as::bytes},
                   {"got/s", shown_as::bytes},
                   {"puts/s", shown_as::rate},
                   {"gets/s", shown_as::rate},
                   {"retries/s", shown_as::rate},
                   {"registered", shown_as::bytes}},
                  2,
                  {}};
    for (const seen& each : all_seen()) {
        for (const metric_sample& one : samples(*each.now, "amalgam_port_registered_bytes")) {
            const auto grew = [&](const std::string& name) {
                return rate(each, "amalgam_port_" + name + "_total", one.labels);
            };
            all.rows.push_back({text(label(one, "port")), text(each.name),
                                number(grew("sent_bytes") + grew("put_bytes")),
                                number(grew("received_bytes") + grew("got_bytes")),
                                number(grew("puts")), number(grew("gets")), number(grew("retries")),
                                number(one.value)});
        }
    }
    return all;
}

top_table top_model::peers() const {
    top_table all{"peers",
                  {{"peer", shown_as::text},
                   {"process", shown_as::text},
                   {"moved/s", shown_as::bytes},
                   {"sent/s", shown_as::bytes},
                   {"got/s", shown_as::bytes},
                   {"messages/s", shown_as::count},
                   {"unread", shown_as::bytes},
                   {"queued", shown_as::count}},
                  2,
                  {}};
    for (const seen& each : all_seen()) {
        for (const metric_sample& one : samples(*each.now, "amalgam_rpc_peer_unread_bytes")) {
            const auto of = [&](const char* name) {
                const metric_sample* const found = sample_of(*each.now, name, one.labels);
                return number(found == nullptr ? 0 : found->value);
            };
            const auto grew = [&](const std::string& name) {
                return rate(each, "amalgam_rpc_peer_" + name + "_total", one.labels);
            };
            const double sent = grew("sent_bytes") + grew("put_bytes");
            const double got = grew("received_bytes") + grew("got_bytes");
            all.rows.push_back({text(label(one, "peer")), text(each.name), number(sent + got),
                                number(sent), number(got),
                                number(grew("sent_messages") + grew("received_messages")),
                                number(one.value), of("amalgam_rpc_peer_queued_messages")});
        }
    }
    return all;
}

top_table top_model::streams() const {
    top_table all{"streams",
                  {{"stream", shown_as::text},
                   {"process", shown_as::text},
                   {"cpu", shown_as::percent},
                   {"state", shown_as::text},
                   {"idle", shown_as::percent},
                   {"steals/s", shown_as::rate},
                   {"longest hold", shown_as::time}},
                  2,
                  {}};
    for (const seen& each : all_seen()) {
        for (const metric_sample& one : samples(*each.now, "amalgam_stream_asleep")) {
            const metric_sample* const hold =
                sample_of(*each.now, "amalgam_stream_longest_hold_seconds", one.labels);
            all.rows.push_back(
                {text(label(one, "stream")), text(each.name),
                 number(rate(each, "amalgam_stream_cpu_seconds_total", one.labels)),
                 text(one.value > 0 ? "asleep" : "awake"),
                 number(std::min(1.0, rate(each, "amalgam_stream_idle_seconds_total", one.labels))),
                 number(rate(each, "amalgam_stream_steals_total", one.labels)),
                 number(hold == nullptr ? 0 : hold->value)});
        }
    }
    return all;
}

top_table top_model::pools() const {
    top_table all{"pools",
                  {{"pool", shown_as::text},
                   {"process", shown_as::text},
                   {"ready", shown_as::count},
                   {"taken/s", shown_as::rate},
                   {"ults", shown_as::count},
                   {"served by", shown_as::text}},
                  2,
                  {}};
    for (const seen& each : all_seen()) {
        for (const metric_sample& one : samples(*each.now, "amalgam_pool_ready_units")) {
            const metric_sample* const ults = sample_of(*each.now, "amalgam_pool_ults", one.labels);
            all.rows.push_back({text(label(one, "pool")), text(each.name), number(one.value),
                                number(rate(each, "amalgam_pool_taken_units_total", one.labels)),
                                number(ults == nullptr ? 0 : ults->value),
                                text(servers_of(*each.now, label(one, "pool")))});
        }
    }
    return all;
}

top_table top_model::nodes() const {
    top_table all{"nodes",
                  {{"node", shown_as::text},
                   {"process", shown_as::text},
                   {"busy", shown_as::percent},
                   {"no input", shown_as::percent},
                   {"no room", shown_as::percent},
                   {"taken/s", shown_as::rate},
                   {"given/s", shown_as::rate},
                   {"taken", shown_as::count}},
                  2,
                  {}};
    for (const seen& each : all_seen()) {
        for (const metric_sample& one : samples(*each.now, "amalgam_flow_node_taken_total")) {
            const auto part = [&](const char* name) {
                return number(std::min(1.0, rate(each, name, one.labels)));
            };
            all.rows.push_back({text(label(one, "node")), text(each.name),
                                part("amalgam_flow_node_busy_seconds_total"),
                                part("amalgam_flow_node_waited_for_input_seconds_total"),
                                part("amalgam_flow_node_waited_for_output_seconds_total"),
                                number(rate(each, "amalgam_flow_node_taken_total", one.labels)),
                                number(rate(each, "amalgam_flow_node_given_total", one.labels)),
                                number(one.value)});
        }
    }
    return all;
}

top_table top_model::channels() const {
    top_table all{"channels",
                  {{"from", shown_as::text},
                   {"to", shown_as::text},
                   {"process", shown_as::text},
                   {"items/s", shown_as::rate},
                   {"bytes/s", shown_as::bytes},
                   {"waiting", shown_as::count},
                   {"at most", shown_as::count}},
                  5,
                  {}};
    for (const seen& each : all_seen()) {
        for (const metric_sample& one : samples(*each.now, "amalgam_flow_channel_items_total")) {
            const auto now = [&](const char* name) {
                const metric_sample* const found = sample_of(*each.now, name, one.labels);
                return number(found == nullptr ? 0 : found->value);
            };
            all.rows.push_back({text(label(one, "from")), text(label(one, "to")), text(each.name),
                                number(rate(each, "amalgam_flow_channel_items_total", one.labels)),
                                number(rate(each, "amalgam_flow_channel_bytes_total", one.labels)),
                                now("amalgam_flow_channel_waiting_items"),
                                now("amalgam_flow_channel_most_waiting_items")});
        }
    }
    return all;
}

std::vector<top_table> top_model::tables() const {
    std::vector<top_table> all;
    all.push_back(processes());
    if (now_.run) {
        all.push_back(nodes());
        all.push_back(channels());
    }
    all.push_back(procedures());
    all.push_back(values());
    all.push_back(peers());
    all.push_back(ports());
    all.push_back(streams());
    all.push_back(pools());
    std::erase_if(
        all, [](const top_table& each) { return each.rows.empty() && each.name != "processes"; });
    return all;
}

std::vector<std::string> top_model::head() const {
    std::vector<std::string> lines;
    if (now_.run) {
        lines.push_back(fmt::format("run {}: {}, {:.0f} s, {} processes", now_.run->launcher,
                                    shown(now_.run->command), now_.run->seconds,
                                    now_.run->processes.size()));
        const std::string neck = now_.run->report().bottleneck();
        if (!neck.empty()) lines.push_back("bottleneck: " + shown(neck));
    } else {
        lines.push_back(fmt::format("{} process{}", now_.processes.size(),
                                    now_.processes.size() == 1 ? "" : "es"));
    }
    if (!now_.silent.empty())
        lines.push_back(fmt::format("{} silent: {}", now_.silent.size(), now_.silent.front()));
    return lines;
}

void top_model::add_to_curves() {
    double cpu = 0, served = 0, items = 0;
    for (const seen& each : all_seen()) {
        cpu += rate(each, "process_cpu_seconds_total");
        served += rate(each, "amalgam_rpc_served_total");
        items += total_rate(each, "amalgam_flow_node_taken_total");
    }
    if (curves_.empty()) {
        curves_ = {{"cpu", shown_as::percent, {}}, {"served/s", shown_as::rate, {}}};
        if (now_.run) curves_.push_back({"items/s", shown_as::rate, {}});
    }
    const std::array<double, 3> newest{cpu, served, items};
    for (std::size_t i = 0; i < curves_.size(); ++i) {
        curves_[i].values.push_back(finite(newest[i]));
        if (curves_[i].values.size() > longest) curves_[i].values.pop_front();
    }
}

}  // namespace amalgam::tool
