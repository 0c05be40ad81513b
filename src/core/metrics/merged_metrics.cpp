#include <algorithm>

#include <amalgam/core/merged_metrics.hpp>
#include <amalgam/core/status.hpp>

namespace amalgam {

namespace {

std::vector<metric_label> with(std::vector<metric_label> labels,
                               const std::vector<metric_label>& more) {
    std::erase_if(labels, [&](const metric_label& each) {
        return std::any_of(more.begin(), more.end(),
                           [&](const metric_label& other) { return other.name == each.name; });
    });
    labels.insert(labels.end(), more.begin(), more.end());
    return labels;
}

}  // namespace

metric_snapshot merge_metrics(const std::vector<metric_part>& parts, metric_limits limits) {
    metric_writer all(limits);
    std::uint64_t left_out = 0, failed = 0;
    for (const metric_part& part : parts) {
        left_out += part.numbers.left_out;
        failed += part.numbers.failed;
        for (const metric_family& family : part.numbers.families) {
            for (const metric_sample& each : family.samples) {
                try {
                    if (family.what.kind == metric_kind::latency)
                        all.add(family.what, with(each.labels, part.labels), each.latency);
                    else
                        all.add(family.what, with(each.labels, part.labels), each.value);
                } catch (const error&) {
                    ++failed;
                }
            }
        }
    }
    metric_snapshot merged = all.take();
    merged.left_out += left_out;
    merged.failed += failed;
    return merged;
}

}  // namespace amalgam
