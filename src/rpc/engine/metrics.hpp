#pragma once

#include <string>
#include <vector>

#include <amalgam/core/counter.hpp>
#include <amalgam/core/metrics.hpp>
#include <amalgam/fabric/port.hpp>

namespace amalgam::detail {

class engine_core;

/// As amalgam::read_metrics() of its engine. Any thread that may wait, with a reference to it.
metric_snapshot read_metrics(engine_core& core);

/// Writes an engine's counters, by the names that metrics have.
void write_counters(const std::vector<counter_value>& all, metric_writer& into);
/// Writes what a port counts.
void write_port(const port& which, const std::string& address, metric_writer& into);

}  // namespace amalgam::detail
