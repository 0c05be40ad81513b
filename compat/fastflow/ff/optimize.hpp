#pragma once

#include <ff/combine.hpp>
#include <ff/farm.hpp>
#include <ff/graph_utils.hpp>
#include <ff/pipeline.hpp>

namespace ff {

/// Accepted, and changes nothing: the graph runs as it is. 0.
int optimize_static(ff_pipeline& pipe, const OptLevel& level = OptLevel1());
int optimize_static(ff_farm& farm, const OptLevel& level = OptLevel1());
int optimize_static(ff_a2a& all, const OptLevel& level = OptLevel1());

}  // namespace ff
