#pragma once

#include <chrono>
#include <optional>

#include <amalgam/core/metrics.hpp>
#include <amalgam/rpc/allow_list.hpp>
#include <amalgam/rpc/codec.hpp>
#include <amalgam/rpc/peer.hpp>

namespace amalgam {

class engine;

/// Where an engine's layers register what they count, and its user may, too. Lives as long as the
/// engine. Any thread.
metric_registry& metrics_of(engine& here);

/// All numbers of an engine of this process: its registry, its procedures, peers and pools, and the
/// process. Parks the ULT or thread for a moment; after stop(), without procedures, peers and
/// pools. Failure: throws error{invalid} where the caller must not wait: in call_then(), inline
/// handlers,
///          tasklets and callbacks of a registry.
metric_snapshot read_metrics(engine& here);

/// Those of a peer; parks the ULT or thread, `timeout` at most.
/// Failure: throws error{not_found} if it does not offer them, error{denied} if not to us; else
///          what calls throw, as error{timed_out}.
metric_snapshot read_metrics(engine& here, const peer& there,
                             std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max());

/// Lets peers read this engine's numbers (`amalgam stats URI`), what it waits for (`amalgam why
/// URI`, read_waits()) and its process's ULTs with their stacks (read_ults()), which name
/// procedures, peers and functions: those of `to`; empty optional: those that
/// may call at all, as engine_options::allow says. Once per engine. Failure: throws error{invalid}
/// the second time, error{closed} after stop().
void offer_metrics(engine& here, std::optional<allow_list> to = {});

}  // namespace amalgam
