#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace wordcount {

/// Command line options.
struct options {
    std::vector<std::string> files;
    std::uint64_t repeat = 1;  ///< How often all files are read.
    std::uint64_t top = 10;    ///< Number of words printed.
    std::string result;        ///< File for all words, or empty.
    std::string figures;       ///< File for "lines bytes seconds", or empty.
    bool progress = false;     ///< Reports progress once a second.
    bool loop = false;         ///< Counts in a plain loop, without a graph.
};

/// Parses a command line. Returns an empty text, or one sentence that says what is wrong.
std::string read_options(const std::vector<std::string>& arguments, options& into);

}  // namespace wordcount
