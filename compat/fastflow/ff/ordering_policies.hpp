#pragma once
// FastFlow keeps here what makes a farm ordered, which ff_farm does by itself.

#include <queue>
#include <vector>

#include <ff/gt.hpp>
#include <ff/lb.hpp>
#include <ff/node.hpp>
