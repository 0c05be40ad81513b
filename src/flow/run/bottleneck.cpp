#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <amalgam/flow/report.hpp>

// What holds a run up, told from the numbers of its report.

namespace amalgam {
namespace {

using cause = bottleneck_report::cause;

// Below this, the busiest node is not the bottleneck if a channel may be.
constexpr double busy_enough = 0.5;
constexpr double waits_much = 0.3;
// A node that waits for this part of its busy time is not slow because of its work.
constexpr double mostly = 0.5;
// More bytes under way than this are limited by the network; fewer, by the number of items that may
// be. A quarter of the usual run_options::window_bytes.
constexpr double much_under_way = 512 << 10;
// Two nodes that share a thread also wait for each other, but with a full queue between them.
constexpr std::uint64_t few_items = 16;

double part_of(double part, double whole) noexcept {
    return whole > 0 ? std::clamp(part / whole, 0.0, 1.0) : 0;
}

std::string in_percent(double part) {
    return fmt::format("{:.0f} %", 100 * part);
}

std::string with_process(const node_report& node) {
    return fmt::format("\"{}\"{}{}", node.name, node.process.empty() ? "" : " in ", node.process);
}

std::string byte_rate(double bytes_per_second) {
    return bytes_per_second >= 1e6 ? fmt::format("{:.1f} MB/s", bytes_per_second / 1e6)
                                   : fmt::format("{:.1f} kB/s", bytes_per_second / 1e3);
}

/// The first of each name.
std::unordered_map<std::string_view, const node_report*> nodes_by_name(
    const std::vector<node_report>& nodes) {
    std::unordered_map<std::string_view, const node_report*> all;
    for (const node_report& one : nodes)
        all.emplace(one.name, &one);
    return all;
}

/// Null if nothing ran.
const node_report* busiest(const std::vector<node_report>& nodes) {
    const bool over = std::all_of(nodes.begin(), nodes.end(), [](const node_report& each) {
        return each.ended || !each.inside.empty() || each.seconds == 0;
    });
    const node_report* most = nullptr;
    // By time, not share: a node that was quick and has ended delayed nobody.
    for (const node_report& each : nodes) {
        if (each.seconds == 0 || (each.ended && !over)) continue;
        if (most == nullptr || each.busy_seconds() >= most->busy_seconds()) most = &each;
    }
    return most;
}

/// `whole`: what percentages are of.
bottleneck_report explain(const node_report& node, double whole) {
    bottleneck_report found;
    found.why = cause::work;
    found.node = node.name;
    found.process = node.process;
    found.share = part_of(node.busy_seconds(), whole);
    found.sentence =
        fmt::format("{}, busy {} of the time", with_process(node), in_percent(found.share));
    double most = mostly * node.busy_seconds();
    const auto waits = [&](cause why, double seconds, const char* what) {
        if (seconds <= 0 || seconds < most) return;
        most = seconds;
        found.why = why;
        found.share = part_of(seconds, whole);
        found.sentence = fmt::format("{}, which waited for {} {} of the time", with_process(node),
                                     what, in_percent(found.share));
    };
    waits(cause::core, node.waited_for_core, "a core");
    waits(cause::lock, node.waited_for_lock, "a lock");
    waits(cause::outside, node.waited_outside, "something outside the graph");
    const bool is_source = node.taken == 0 && node.given > 0;
    switch (found.why) {
        case cause::core:
            found.advice =
                "more cores for its process, or fewer threads on them: \"threads\" of the group, "
                "another \"host\", in_pool() for nodes that need a thread of their own";
            break;
        case cause::lock:
            found.advice =
                "hold the lock for less, or give each worker data of its own and sum it up in "
                "end()";
            break;
        case cause::outside:
            found.advice = fmt::format(
                "let several wait at once: {}, or read ahead of what is needed",
                is_source ? "several sources with a share each" : "a farm in place of this node");
            break;
        default:
            found.advice =
                is_source
                    ? "make it faster, or split it into several sources with a share each: the "
                      "nodes behind it have time left"
                    : "make it faster, or give it more workers: a farm, or \"replicas\" of its "
                      "group";
    }
    return found;
}

/// If both ends wait for each other.
bottleneck_report explain(const channel_report& channel, const node_report& from,
                          const node_report& to, double whole) {
    const double out = part_of(from.waited_for_output, whole);
    const double in = part_of(to.waited_for_input, whole);
    if (out < waits_much || in < waits_much) return {};
    if (!channel.between_groups && channel.most_waiting > few_items) return {};
    bottleneck_report found;
    found.node = from.name;
    found.process = from.process;
    found.to_node = to.name;
    found.to_process = to.process;
    found.share = std::min(out, in);
    const double item_bytes = channel.items == 0 ? 0
                                                 : static_cast<double>(channel.bytes) /
                                                       static_cast<double>(channel.items);
    const double under_way = static_cast<double>(channel.most_waiting) * item_bytes;
    const std::string ways = fmt::format(
        "from {} to {}: the sender waits for room {} of the time, the receiver for items {}",
        with_process(from), with_process(to), in_percent(out), in_percent(in));
    if (channel.between_groups && under_way >= much_under_way) {
        found.why = cause::network;
        found.sentence =
            fmt::format("the network {}, at {}", ways,
                        byte_rate(whole > 0 ? static_cast<double>(channel.bytes) / whole : 0));
        found.advice =
            "send fewer bytes, put both nodes into one group or on one host, or take a faster "
            "transport; over a long way, a larger run_options::window_bytes";
    } else {
        found.why = cause::credit;
        found.sentence = fmt::format("the channel {}, with at most {} item{} under way", ways,
                                     channel.most_waiting, channel.most_waiting == 1 ? "" : "s");
        found.advice =
            "let more items be under way: a larger k of on_demand(k), "
            "run_options::queue_items or window_bytes; or send fewer, larger items";
    }
    return found;
}

using item_key = std::tuple<std::string_view, std::string_view, std::string_view>;

std::uint64_t grown(std::uint64_t now, std::uint64_t before) noexcept {
    return now - std::min(now, before);
}
double grown(double now, double before) noexcept {
    return std::max(now - before, 0.0);
}

}  // namespace

const char* name(bottleneck_report::cause why) noexcept {
    switch (why) {
        case cause::nothing:
            return "nothing";
        case cause::work:
            return "work";
        case cause::core:
            return "core";
        case cause::lock:
            return "lock";
        case cause::outside:
            return "outside";
        case cause::network:
            return "network";
        case cause::credit:
            return "credit";
    }
    return "unknown";
}

bottleneck_report run_report::explain() const {
    const node_report* const most = busiest(nodes);
    if (most == nullptr) return {};
    const double whole = seconds();
    if (part_of(most->busy_seconds(), whole) < busy_enough) {
        const auto all = nodes_by_name(nodes);
        bottleneck_report worst;
        for (const channel_report& channel : channels) {
            const auto from = all.find(channel.from);
            const auto to = all.find(channel.to);
            if (from == all.end() || to == all.end() || channel.items == 0) continue;
            bottleneck_report one = amalgam::explain(channel, *from->second, *to->second, whole);
            if (one.share > worst.share) worst = std::move(one);
        }
        if (worst.share > 0) return worst;
    }
    return amalgam::explain(*most, whole);
}

std::string run_report::bottleneck() const {
    return explain().sentence;
}

run_report run_report::since(const run_report& before) const {
    run_report passed = *this;
    std::map<item_key, const node_report*> nodes_then;
    for (const node_report& each : before.nodes)
        nodes_then.emplace(item_key{each.name, each.process, {}}, &each);
    for (node_report& each : passed.nodes) {
        const auto then = nodes_then.find(item_key{each.name, each.process, {}});
        if (then == nodes_then.end()) continue;
        const node_report& old = *then->second;
        each.taken = grown(each.taken, old.taken);
        each.given = grown(each.given, old.given);
        for (const auto part : {&node_report::seconds, &node_report::waited_for_input,
                                &node_report::waited_for_output, &node_report::waited_for_core,
                                &node_report::waited_for_lock, &node_report::waited_outside})
            each.*part = grown(each.*part, old.*part);
    }
    std::map<item_key, const channel_report*> channels_then;
    for (const channel_report& each : before.channels)
        channels_then.emplace(item_key{each.from, each.to, each.process}, &each);
    for (channel_report& each : passed.channels) {
        const auto then = channels_then.find(item_key{each.from, each.to, each.process});
        if (then == channels_then.end()) continue;
        each.items = grown(each.items, then->second->items);
        each.bytes = grown(each.bytes, then->second->bytes);
    }
    std::map<std::string_view, const process_report*> processes_then;
    for (const process_report& each : before.processes)
        processes_then.emplace(each.name, &each);
    for (process_report& each : passed.processes) {
        const auto then = processes_then.find(each.name);
        if (then == processes_then.end()) continue;
        each.seconds = grown(each.seconds, then->second->seconds);
        each.processor_seconds = grown(each.processor_seconds, then->second->processor_seconds);
    }
    return passed;
}

}  // namespace amalgam
