#include <algorithm>
#include <iterator>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <amalgam/flow/report.hpp>

namespace amalgam {
namespace {

using json = nlohmann::ordered_json;

double share(double part, double whole) noexcept {
    return whole > 0 ? std::clamp(part / whole, 0.0, 1.0) : 0;
}

std::string percent(double part) {
    return fmt::format("{:.0f} %", 100 * part);
}

// Longer names only shift their own line.
constexpr std::size_t widest = 60;

/// For people: 1,234,567.
std::string grouped(std::uint64_t number) {
    std::string digits = std::to_string(number);
    for (std::size_t at = digits.size(); at > 3; at -= 3)
        digits.insert(at - 3, ",");
    return digits;
}

json as_json(const node_report& node) {
    json one{{"name", node.name}};
    if (!node.process.empty()) one["process"] = node.process;
    if (!node.inside.empty()) one["inside"] = node.inside;
    one["taken"] = node.taken;
    one["given"] = node.given;
    one["seconds"] = node.seconds;
    one["waited_for_input"] = node.waited_for_input;
    one["waited_for_output"] = node.waited_for_output;
    one["waited_for_core"] = node.waited_for_core;
    one["waited_for_lock"] = node.waited_for_lock;
    one["waited_outside"] = node.waited_outside;
    one["ended"] = node.ended;
    return one;
}

json as_json(const channel_report& channel) {
    json one{{"from", channel.from}, {"to", channel.to}};
    if (!channel.process.empty()) one["process"] = channel.process;
    one["items"] = channel.items;
    if (channel.between_groups) one["bytes"] = channel.bytes;
    if (channel.between_groups) one["unconsumed_bytes"] = channel.unconsumed_bytes;
    one["waiting"] = channel.waiting;
    one["most_waiting"] = channel.most_waiting;
    one["between_groups"] = channel.between_groups;
    return one;
}

json as_json(const process_report& process) {
    json one = json::object();
    if (!process.name.empty()) one["name"] = process.name;
    one["seconds"] = process.seconds;
    one["processor_seconds"] = process.processor_seconds;
    one["resident_bytes"] = process.resident_bytes;
    one["cores"] = process.cores;
    return one;
}

/// get_to() would accept any number, and truncate it.
std::uint64_t counted(const json& in, const char* key) {
    const json& value = in.at(key);
    if (!value.is_number_unsigned())
        throw error(
            errc::invalid,
            fmt::format("\"{}\" is {}, expected a count such as 7", key,
                        value.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 60)));
    return value.get<std::uint64_t>();
}

}  // namespace

double node_report::busy() const noexcept {
    return share(busy_seconds(), seconds);
}

double node_report::busy_seconds() const noexcept {
    return inside.empty() ? std::max(seconds - waited_for_input - waited_for_output, 0.0) : 0;
}

void run_report::add(const run_report& other) {
    nodes.insert(nodes.end(), other.nodes.begin(), other.nodes.end());
    channels.insert(channels.end(), other.channels.begin(), other.channels.end());
    processes.insert(processes.end(), other.processes.begin(), other.processes.end());
}

double run_report::seconds() const noexcept {
    double longest = 0;
    for (const node_report& node : nodes)
        longest = std::max(longest, node.seconds);
    return longest;
}

std::string run_report::text() const {
    const double whole = seconds();
    std::size_t node_width = 4, way_width = 7, process_width = 7;
    for (const node_report& node : nodes) {
        node_width = std::max(node_width, node.name.size());
        process_width = std::max(process_width, node.process.size());
    }
    for (const channel_report& channel : channels)
        way_width = std::max(way_width, channel.from.size() + channel.to.size() + 4);
    for (std::size_t* width : {&node_width, &way_width, &process_width})
        *width = std::min(*width, widest);
    std::string text;
    const auto out = std::back_inserter(text);
    fmt::format_to(out, "{:{}}  {:{}}  {:>14}  {:>14}  {:>6}  {:>11}  {:>11}\n", "node", node_width,
                   "process", process_width, "taken", "given", "busy", "waits for", "waits for");
    fmt::format_to(out, "{:{}}  {:>11}  {:>11}\n", "", node_width + process_width + 42, "input",
                   "output");
    for (const node_report& node : nodes) {
        fmt::format_to(out, "{:{}}  {:{}}  {:>14}  {:>14}", node.name, node_width, node.process,
                       process_width, grouped(node.taken), grouped(node.given));
        if (node.inside.empty())
            fmt::format_to(out, "  {:>6}  {:>11}  {:>11}\n",
                           percent(share(node.busy_seconds(), whole)),
                           percent(share(node.waited_for_input, whole)),
                           percent(share(node.waited_for_output, whole)));
        else
            fmt::format_to(out, "  inside {}\n", node.inside);
    }
    fmt::format_to(out, "{:{}}  {:{}}  {:>14}  {:>16}  {:>9}  {:>9}\n", "channel", way_width,
                   "process", process_width, "items", "bytes", "waiting", "at most");
    for (const channel_report& channel : channels)
        fmt::format_to(out, "{:{}}  {:{}}  {:>14}  {:>16}  {:>9}  {:>9}\n",
                       channel.from + " -> " + channel.to, way_width, channel.process,
                       process_width, grouped(channel.items),
                       channel.between_groups ? grouped(channel.bytes) : "",
                       grouped(channel.waiting), grouped(channel.most_waiting));
    const bottleneck_report neck = explain();
    if (!neck.sentence.empty()) fmt::format_to(out, "bottleneck: {}\n", neck.sentence);
    if (!neck.advice.empty()) fmt::format_to(out, "try: {}\n", neck.advice);
    return text;
}

std::string run_report::line(const run_report& before) const {
    std::uint64_t taken = 0;
    for (const node_report& node : nodes)
        if (node.given == 0) taken += node.taken;
    const std::string neck = since(before).bottleneck();
    return fmt::format("{:.1f} s, {} items at the end of the graph{}{}", seconds(), grouped(taken),
                       neck.empty() ? "" : "; bottleneck: ", neck);
}

std::string run_report::json() const {
    using value = nlohmann::ordered_json;
    value all{
        {"nodes", value::array()}, {"channels", value::array()}, {"processes", value::array()}};
    for (const node_report& node : nodes)
        all["nodes"].push_back(as_json(node));
    for (const channel_report& channel : channels)
        all["channels"].push_back(as_json(channel));
    for (const process_report& process : processes)
        all["processes"].push_back(as_json(process));
    const bottleneck_report neck = explain();
    all["bottleneck"] = neck.sentence;
    all["cause"] = name(neck.why);
    all["advice"] = neck.advice;
    return all.dump(-1, ' ', false, value::error_handler_t::replace);
}

result<run_report> parse_run_report(std::string_view text) {
    try {
        // Valid reports nest no deeper, and deep nesting would take much memory.
        const json all = json::parse(
            text, [](int depth, json::parse_event_t, const json&) { return depth <= 3; });
        run_report report;
        for (const json& one : all.at("nodes")) {
            node_report node;
            one.at("name").get_to(node.name);
            node.process = one.value("process", "");
            node.inside = one.value("inside", "");
            node.taken = counted(one, "taken");
            node.given = counted(one, "given");
            one.at("seconds").get_to(node.seconds);
            one.at("waited_for_input").get_to(node.waited_for_input);
            one.at("waited_for_output").get_to(node.waited_for_output);
            node.waited_for_core = one.value("waited_for_core", 0.0);
            node.waited_for_lock = one.value("waited_for_lock", 0.0);
            node.waited_outside = one.value("waited_outside", 0.0);
            node.ended = one.value("ended", false);
            report.nodes.push_back(std::move(node));
        }
        for (const json& one : all.at("channels")) {
            channel_report channel;
            one.at("from").get_to(channel.from);
            one.at("to").get_to(channel.to);
            channel.process = one.value("process", "");
            channel.items = counted(one, "items");
            channel.bytes = one.contains("bytes") ? counted(one, "bytes") : 0;
            channel.unconsumed_bytes =
                one.contains("unconsumed_bytes") ? counted(one, "unconsumed_bytes") : 0;
            channel.waiting = counted(one, "waiting");
            channel.most_waiting = counted(one, "most_waiting");
            one.at("between_groups").get_to(channel.between_groups);
            report.channels.push_back(std::move(channel));
        }
        for (const json& one : all.value("processes", json::array())) {
            process_report process;
            process.name = one.value("name", "");
            one.at("seconds").get_to(process.seconds);
            one.at("processor_seconds").get_to(process.processor_seconds);
            process.resident_bytes = counted(one, "resident_bytes");
            process.cores = counted(one, "cores");
            report.processes.push_back(std::move(process));
        }
        return report;
    } catch (const json::exception& wrong) {
        return {errc::invalid, fmt::format("this is not a report of a run: {}", wrong.what())};
    } catch (const error& wrong) {
        return {errc::invalid, fmt::format("this is not a report of a run: {}", wrong.what())};
    }
}

}  // namespace amalgam
