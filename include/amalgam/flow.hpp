#pragma once

/// Streaming graphs over groups of processes. All public headers of the layer, and the alias `am`.
#include <amalgam/core/alias.hpp>
#include <amalgam/flow/accelerator.hpp>
#include <amalgam/flow/config.hpp>
#include <amalgam/flow/graph.hpp>
#include <amalgam/flow/launcher.hpp>
#include <amalgam/flow/live_page.hpp>
#include <amalgam/flow/node.hpp>
#include <amalgam/flow/outlet.hpp>
#include <amalgam/flow/place.hpp>
#include <amalgam/flow/pooled.hpp>
#include <amalgam/flow/report.hpp>
#include <amalgam/flow/routing.hpp>
#include <amalgam/flow/run.hpp>
#include <amalgam/flow/run_status.hpp>
