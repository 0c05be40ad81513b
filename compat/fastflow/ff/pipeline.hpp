#pragma once
// As FastFlow's: with all other blocks.

#include <ff/combine.hpp>
#include <ff/farm.hpp>
#include <ff/graph_utils.hpp>
#include <ff/optimize.hpp>
#include <ff/pipeline_block.hpp>
