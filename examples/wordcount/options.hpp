#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace wordcount {

/// What the command line asks for.
struct options {
    std::vector<std::string> files;
    std::uint64_t repeat = 1;  ///< How many times all files are read.
    std::uint64_t top = 10;    ///< How many words are printed.
    std::string result;        ///< Where to write every word, or empty.
    std::string figures;       ///< Where to write "lines bytes seconds", or empty.
    bool progress = false;     ///< Tells how far it is, once a second.
    bool loop = false;         ///< Counts in a plain loop, without a graph.
};

/// Reads a command line. Returns an empty text, or one sentence that says what was wrong.
std::string read_options(const std::vector<std::string>& arguments, options& into);

}  // namespace wordcount
