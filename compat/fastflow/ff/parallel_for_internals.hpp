#pragma once
// FastFlow keeps the loops' macros here.

#include <ff/parallel_for.hpp>
