#pragma once

#include "image.hpp"

namespace image_pipeline {

/// Blurred by a binomial kernel of 17 points, first along the rows, then along the columns. Beyond
/// its edges an image is as at its edges.
image blurred(const image& what);

/// How much the brightness changes at each point, by Sobel's operator, in gray.
image edges(const image& what);

/// What the pipeline does to each image: the edges of what is left without noise. Whole numbers
/// only, so the same on every machine.
image outlines(const image& what);

}  // namespace image_pipeline
