#pragma once

#include <amalgam/core/metrics.hpp>

#include "rpc/call/counted_procedure.hpp"
#include "rpc/serve/procedure_table.hpp"

namespace amalgam::detail {

/// What is counted of a procedure at the end of its callers, or of what its handler reads from
/// them. The engine's stream.
void write_called_procedure(const counted_procedure& each, metric_writer& into);
/// The same at the end of its handler. Procedures of the library are left out.
void write_served_procedure(const served_procedure& each, metric_writer& into);

}  // namespace amalgam::detail
