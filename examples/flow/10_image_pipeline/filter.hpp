#pragma once

#include "image.hpp"

namespace image_pipeline {

/// Blurs with a binomial kernel of 17 points, first along the rows, then along the columns. Edge
/// pixels extend beyond the edges.
image blurred(const image& what);

/// Brightness gradient at each point, by Sobel's operator, in gray.
image edges(const image& what);

/// The pipeline's filter: edges of the denoised image. Integers only, so the same on every machine.
image outlines(const image& what);

}  // namespace image_pipeline
