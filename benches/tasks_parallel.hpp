#pragma once

#include "questions.hpp"

namespace amalgam::bench {

/// Milliseconds for a loop of 10 million cheap iterations, and for a Cholesky factorization of 16 x
/// 16 tiles, on two processors.
double parallel_loop(const length& how_long);
double tile_graph(const length& how_long);

}  // namespace amalgam::bench
