#pragma once

#include <amalgam/core/metrics.hpp>

namespace amalgam::detail {

class engine_core;

/// As amalgam::read_metrics() of its engine. Any thread that may wait, with a reference to it.
metric_snapshot read_metrics(engine_core& core);

}  // namespace amalgam::detail
