#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "plate.hpp"

namespace heat {

/// Command line options.
struct options {
    plate size{400, 400};
    std::size_t iterations = 500;
    std::size_t bands = 6;
    std::size_t workers = 3;
    std::string result;       ///< File for all temperatures, or empty.
    std::string picture;      ///< File for a picture of them, or empty.
    bool sequential = false;  ///< Computes in a plain loop, without a graph.
};

/// Parses a command line. Returns an empty text, or one sentence that says what is wrong.
std::string read_options(const std::vector<std::string>& arguments, options& into);

}  // namespace heat
