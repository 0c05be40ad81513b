#pragma once

#include <cstddef>
#include <string>

namespace amalgam {

/// Where a node runs: told to it before its first item.
struct place {
    std::string group;         ///< Empty when the whole graph runs in one process.
    std::size_t replica = 0;   ///< Which of the group's processes this is, from 0.
    std::size_t replicas = 1;  ///< How many processes the group has.
};

}  // namespace amalgam
