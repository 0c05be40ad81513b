#include "flow/web/page_values.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <amalgam/core/detail/printable.hpp>

namespace amalgam::detail {
namespace {

using value = nlohmann::ordered_json;

std::string text_of_value(const value& what) {
    return what.dump(-1, ' ', false, value::error_handler_t::replace);
}

double rounded(double number) {
    return std::round(number * 1000) / 1000;
}

double per_second(std::uint64_t count, double seconds) {
    return seconds > 0 ? rounded(static_cast<double>(count) / seconds) : 0;
}

/// Seconds that each process's numbers in `passed` cover.
std::map<std::string_view, double> seconds_by_process(const run_report& passed) {
    std::map<std::string_view, double> all;
    for (const process_report& each : passed.processes)
        all.emplace(each.name, each.seconds);
    return all;
}

double seconds_of(const std::map<std::string_view, double>& all, std::string_view process) {
    const auto found = all.find(process);
    return found == all.end() ? 0 : found->second;
}

value shown_nodes(const run_report& all, const run_report& passed) {
    const auto seconds = seconds_by_process(passed);
    value nodes = value::array();
    for (std::size_t i = 0; i < std::min(all.nodes.size(), live_page::most_nodes); ++i) {
        const node_report& whole = all.nodes[i];
        const node_report& now = passed.nodes[i];
        // A node that has ended waits for nothing.
        const double time = now.ended && now.seconds == 0 ? 0 : now.seconds;
        const auto share = [&](double part) {
            return time > 0 ? rounded(std::clamp(part / time, 0.0, 1.0)) : 0;
        };
        nodes.push_back({{"name", whole.name},
                         {"process", whole.process},
                         {"inside", whole.inside},
                         {"taken", whole.taken},
                         {"given", whole.given},
                         {"taken_rate", per_second(now.taken, seconds_of(seconds, now.process))},
                         {"given_rate", per_second(now.given, seconds_of(seconds, now.process))},
                         {"busy", share(now.busy_seconds())},
                         {"core", share(now.waited_for_core)},
                         {"lock", share(now.waited_for_lock)},
                         {"outside", share(now.waited_outside)},
                         {"input", share(now.waited_for_input)},
                         {"output", share(now.waited_for_output)},
                         {"ended", whole.ended}});
    }
    return nodes;
}

value shown_channels(const run_report& all, const run_report& passed) {
    const auto seconds = seconds_by_process(passed);
    value channels = value::array();
    for (std::size_t i = 0; i < std::min(all.channels.size(), live_page::most_channels); ++i) {
        const channel_report& whole = all.channels[i];
        const channel_report& now = passed.channels[i];
        const double time = seconds_of(seconds, now.process);
        channels.push_back({{"from", whole.from},
                            {"to", whole.to},
                            {"process", whole.process},
                            {"items", whole.items},
                            {"rate", per_second(now.items, time)},
                            {"bytes_rate", per_second(now.bytes, time)},
                            {"waiting", whole.waiting},
                            {"most_waiting", whole.most_waiting},
                            {"between", whole.between_groups}});
    }
    return channels;
}

value shown_processes(const page_state& state, const run_report& passed) {
    value processes = value::array();
    for (const page_process& each : state.processes) {
        value one{{"label", each.label},
                  {"where", each.where},
                  {"state", each.state},
                  {"running", each.running}};
        double processor = each.processor;
        std::uint64_t memory = each.memory;
        for (const process_report& now : passed.processes) {
            if (now.name != each.label) continue;
            processor = now.seconds > 0 ? now.processor_seconds / now.seconds : 0;
            memory = now.resident_bytes;
            one["cores"] = now.cores;
        }
        one["processor"] = each.running ? rounded(processor) : 0;
        one["memory"] = each.running ? memory : 0;
        processes.push_back(std::move(one));
    }
    return processes;
}

value shown_tables(const std::vector<page_table>& tables) {
    value all = value::array();
    for (const page_table& each : tables) {
        value rows = value::array();
        for (const auto& row : each.rows) {
            if (rows.size() == live_page::most_rows) break;
            value cells = value::array();
            for (const page_table::cell& one : row)
                cells.push_back(printable(one.text));
            rows.push_back(std::move(cells));
        }
        all.push_back(
            {{"name", each.name},
             {"columns", each.columns},
             {"texts", each.texts},
             {"rows", std::move(rows)},
             {"more", each.rows.size() - std::min(each.rows.size(), live_page::most_rows)}});
    }
    return all;
}

value as_value(const bottleneck_report& neck) {
    return {{"cause", name(neck.why)},       {"node", neck.node},
            {"process", neck.process},       {"to_node", neck.to_node},
            {"to_process", neck.to_process}, {"sentence", neck.sentence},
            {"advice", neck.advice}};
}

/// Items per second at the end of the graph, bytes per second between groups, and how long items
/// wait in queues: by Little's law, those that wait by how many leave. Then cores and memory.
value point_of(double when, const value& nodes, const value& channels, const value& processes) {
    double items = 0, bytes = 0, waiting = 0, through = 0, cores = 0, memory = 0;
    for (const value& each : nodes)
        if (each["given"] == 0) items += each["taken_rate"].get<double>();
    for (const value& each : channels) {
        bytes += each["bytes_rate"].get<double>();
        waiting += each["waiting"].get<double>();
        through = std::max(through, each["rate"].get<double>());
    }
    for (const value& each : processes) {
        cores += each["processor"].get<double>();
        memory += each["memory"].get<double>();
    }
    const double queued = through > 0 ? waiting / through : 0;
    return {rounded(when), items, bytes, rounded(queued), rounded(cores), memory};
}

value as_value(const told_ult& one) {
    // Numbers of 64 bits are none of JavaScript's.
    return {{"id", fmt::format("{:08x}", one.id & 0xffffffff)},
            {"name", one.name},
            {"state", name(one.state)},
            {"waits_for", one.waits_for},
            {"waited", rounded(std::chrono::duration<double>(one.waited).count())},
            {"unit", one.unit == 0 ? "" : fmt::format("{:08x}", one.unit & 0xffffffff)},
            {"stream", one.stream},
            {"trace", one.trace}};
}

}  // namespace

page_texts texts_of(const page_options& of, bool returns, double seconds, const page_state& now,
                    const run_report& before) {
    const run_report& so_far = now.run ? *now.run : run_report();
    const run_report passed = so_far.since(before);
    value all{
        {"command", of.title},
        {"can_stop", of.can_stop},
        {"can_checkpoint", of.can_checkpoint},
        {"tells_ults", of.tells_ults},
        {"returns", returns},
        {"state", now.state},
        {"sentence", now.sentence},
        {"seconds", rounded(seconds)},
        {"has_graph", now.run.has_value()},
        {"nodes", shown_nodes(so_far, passed)},
        {"more_nodes", so_far.nodes.size() - std::min(so_far.nodes.size(), live_page::most_nodes)},
        {"channels", shown_channels(so_far, passed)},
        {"processes", shown_processes(now, passed)},
        {"tables", shown_tables(now.tables)}};
    // At the end, of the whole run.
    all["bottleneck"] = as_value(now.state == "running" ? passed.explain() : so_far.explain());
    const value point = point_of(seconds, all["nodes"], all["channels"], all["processes"]);
    all["point"] = point;
    return {text_of_value(all), text_of_value(point)};
}

std::string text_of(const std::string& process, const result<ult_report>& told) {
    value all{{"process", process}};
    if (told) {
        all["pid"] = told->process;
        all["host"] = told->host;
        all["left_out"] = told->left_out;
        all["ults"] = value::array();
        for (const told_ult& each : told->ults)
            all["ults"].push_back(as_value(each));
    } else {
        all["why"] = printable(told.sentence());
    }
    return text_of_value(all);
}

std::string text_of(const std::vector<std::string>& lines) {
    return text_of_value(value(lines));
}

}  // namespace amalgam::detail
