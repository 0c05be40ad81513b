#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace image_pipeline {

/// Command line options.
struct options {
    std::vector<std::string> inputs;  ///< Files, and folders of files.
    std::string into;                 ///< Folder of the results.
    std::uint32_t workers = 4;        ///< Number of filter nodes.
    std::uint32_t generate = 0;       ///< Number of samples to make, instead of anything else.
    std::uint32_t side = 256;         ///< Approximate side length of samples in pixels.
    bool sequential = false;          ///< Filters in a plain loop, without a graph.
};

/// Parses a command line. Returns an empty text, or one sentence that says what is wrong.
std::string read_options(const std::vector<std::string>& arguments, options& into);

}  // namespace image_pipeline
