#pragma once

#include "questions.hpp"

namespace amalgam::bench {

/// Milliseconds for a search with one ULT for each queen in the first rows.
double queens(int streams, const length& how_long);

}  // namespace amalgam::bench
