#pragma once
// FastFlow's programming interface on Amalgam: everything but the data-parallel patterns.

#include <ff/all2all.hpp>
#include <ff/combine.hpp>
#include <ff/farm.hpp>
#include <ff/graph_utils.hpp>
#include <ff/multinode.hpp>
#include <ff/node.hpp>
#include <ff/optimize.hpp>
#include <ff/pipeline.hpp>
#include <ff/ubuffer.hpp>
