#pragma once

#include <string>

#include <amalgam/core/metrics.hpp>
#include <amalgam/fabric/port.hpp>

namespace amalgam::detail {

/// Writes what a port counts.
void write_port(const port& which, const std::string& address, metric_writer& into);

}  // namespace amalgam::detail
