#include <cstdint>
#include <utility>
#include <vector>

#include <amalgam/flow/report.hpp>

namespace amalgam {
namespace {

constexpr metric_kind grows = metric_kind::counter;
constexpr metric_kind varies = metric_kind::gauge;

class labeled_writer {
public:
    labeled_writer(metric_writer& into, std::vector<metric_label> labels)
        : into_(into), labels_(std::move(labels)) {}

    void add(const char* name, const char* help, metric_kind kind, double value,
             const char* unit = "") {
        into_.add({name, help, kind, unit}, labels_, value);
    }
    void add(const char* name, const char* help, metric_kind kind, std::uint64_t value,
             const char* unit = "") {
        add(name, help, kind, static_cast<double>(value), unit);
    }

private:
    metric_writer& into_;
    const std::vector<metric_label> labels_;
};

void write(const node_report& node, metric_writer& all) {
    labeled_writer into(all, {{"node", node.name}});
    into.add("amalgam_flow_node_taken_total", "Items that a node has taken.", grows, node.taken);
    into.add("amalgam_flow_node_given_total",
             "Items that a node has given; one to all workers counts once for each.", grows,
             node.given);
    if (!node.inside.empty()) return;  // Another node accounts for its time.
    into.add("amalgam_flow_node_seconds_total", "Time since the start of a node.", grows,
             node.seconds, "seconds");
    into.add("amalgam_flow_node_busy_seconds_total",
             "Time in which a node waited neither for items nor for room.", grows,
             node.busy_seconds(), "seconds");
    into.add("amalgam_flow_node_waited_for_input_seconds_total", "Time without an item to take.",
             grows, node.waited_for_input, "seconds");
    into.add("amalgam_flow_node_waited_for_output_seconds_total",
             "Time without room for an item, or a free worker.", grows, node.waited_for_output,
             "seconds");
}

void write(const channel_report& channel, metric_writer& all) {
    labeled_writer into(all, {{"from", channel.from}, {"to", channel.to}});
    into.add("amalgam_flow_channel_items_total", "Items sent from a node to another.", grows,
             channel.items);
    into.add("amalgam_flow_channel_waiting_items", "Items sent that were not taken yet.", varies,
             channel.waiting);
    into.add("amalgam_flow_channel_most_waiting_items",
             "The most items that have waited, approximately.", varies, channel.most_waiting);
    if (!channel.between_groups) return;
    into.add("amalgam_flow_channel_bytes_total", "Bytes of items sent to another process.", grows,
             channel.bytes, "bytes");
    into.add("amalgam_flow_channel_unconsumed_bytes",
             "Bytes sent that were not consumed yet; at the window's size the sender waits.",
             varies, channel.unconsumed_bytes, "bytes");
}

}  // namespace

metric_snapshot to_metrics(const run_report& report) {
    metric_writer all;
    for (const node_report& each : report.nodes)
        write(each, all);
    for (const channel_report& each : report.channels)
        write(each, all);
    return all.take();
}

}  // namespace amalgam
