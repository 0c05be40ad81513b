#pragma once

#include <ff/combine.hpp>
#include <ff/farm_block.hpp>
#include <ff/graph_utils.hpp>
#include <ff/pipeline_block.hpp>

namespace ff {

/// With `remove_collector`, removes collectors that only pass items on, where the next node can
/// have several inputs. What else a level asks for is accepted and changes nothing. 0.
int optimize_static(ff_pipeline& pipe, const OptLevel& level = OptLevel1());
int optimize_static(ff_farm& farm, const OptLevel& level = OptLevel1());
int optimize_static(ff_a2a& all, const OptLevel& level = OptLevel1());

}  // namespace ff
