#pragma once

#include <ff/farm_block.hpp>
#include <ff/ordering_policies.hpp>

// For programs of FastFlow 2, in which ff_farm is a template.
#if defined(AMALGAM_FASTFLOW_2)
#include <ff/farm_of.hpp>
#include <ff/graph_utils.hpp>
#include <ff/optimize.hpp>
#define ff_farm ff_farm_of
#endif
