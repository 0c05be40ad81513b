#pragma once

#include "image.hpp"

namespace image_pipeline {

/// The `number`-th sample of about `side` pixels per side, always the same: discs on a gradient,
/// with noise.
image sample(std::uint32_t number, std::uint32_t side);

}  // namespace image_pipeline
