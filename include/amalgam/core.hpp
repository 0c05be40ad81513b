#pragma once

/// The foundations: status and results, URIs, buffers, clocks, counters, the log. All public
/// headers of the layer, and the alias `am`.
#include <amalgam/core/alias.hpp>
#include <amalgam/core/blocked_signals.hpp>
#include <amalgam/core/buffer.hpp>
#include <amalgam/core/bytes.hpp>
#include <amalgam/core/clock.hpp>
#include <amalgam/core/counter.hpp>
#include <amalgam/core/crc32c.hpp>
#include <amalgam/core/gathered_trace.hpp>
#include <amalgam/core/hash.hpp>
#include <amalgam/core/json_checker.hpp>
#include <amalgam/core/latency_histogram.hpp>
#include <amalgam/core/limited_log.hpp>
#include <amalgam/core/log.hpp>
#include <amalgam/core/merged_metrics.hpp>
#include <amalgam/core/metrics.hpp>
#include <amalgam/core/next_iterator.hpp>
#include <amalgam/core/otlp_trace.hpp>
#include <amalgam/core/random.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/core/unique_fd.hpp>
#include <amalgam/core/uri.hpp>
