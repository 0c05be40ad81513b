#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace image_pipeline {

/// What the command line asks for.
struct options {
    std::vector<std::string> inputs;  ///< Files, and folders of files.
    std::string into;                 ///< The folder where results go.
    std::uint32_t workers = 4;        ///< How many filter.
    std::uint32_t generate = 0;       ///< How many samples to make, instead of all else.
    std::uint32_t side = 256;         ///< About how many pixels their sides have.
    bool sequential = false;          ///< Filters in a plain loop, without a graph.
};

/// Reads a command line. Returns an empty text, or one sentence that says what was wrong.
std::string read_options(const std::vector<std::string>& arguments, options& into);

}  // namespace image_pipeline
