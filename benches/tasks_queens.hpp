#pragma once

#include "questions.hpp"

namespace amalgam::bench {

/// Milliseconds that a search by a ULT for each queen in the first rows takes.
double queens(int streams, const length& how_long);

}  // namespace amalgam::bench
