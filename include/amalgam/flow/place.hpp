#pragma once

#include <cstddef>
#include <string>

namespace amalgam {

/// Where a node runs; passed to it before its first item.
struct place {
    std::string group;         ///< Empty if the whole graph runs in one process.
    std::size_t replica = 0;   ///< Index of this process in the group, from 0.
    std::size_t replicas = 1;  ///< Number of processes in the group.
};

}  // namespace amalgam
