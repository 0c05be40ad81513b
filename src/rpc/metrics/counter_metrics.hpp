#pragma once

#include <vector>

#include <amalgam/core/counter.hpp>
#include <amalgam/core/metrics.hpp>

namespace amalgam::detail {

/// Writes an engine's counters, by the names that metrics have.
void write_counters(const std::vector<counter_value>& all, metric_writer& into);

}  // namespace amalgam::detail
