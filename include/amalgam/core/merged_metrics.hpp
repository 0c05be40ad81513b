#pragma once

#include <vector>

#include <amalgam/core/metrics.hpp>

namespace amalgam {

/// One of several snapshots that are shown together, as that of one process of a run.
struct metric_part {
    std::vector<metric_label> labels;  ///< What tells it from the others: {"process", "G2.1"}.
    metric_snapshot numbers;           ///< The snapshot itself.
};

/// All numbers of all parts, each with the labels of its part, which take the place of labels of
/// the same name. A name that two parts use for different kinds of numbers is kept as the first has
/// it, and counted as failed for the others.
metric_snapshot merge_metrics(const std::vector<metric_part>& parts,
                              metric_limits limits = {.label_sets = 20'000, .samples = 200'000});

}  // namespace amalgam
