#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <sys/types.h>

namespace amalgam::detail {

class dispatcher;
class ult_core;

/// Snapshot of a stream. Pointers are for comparison only: what they name may be gone.
struct stream_seen {
    const dispatcher* who;
    std::string name;
    pid_t thread;
    const ult_core* running;  ///< May be null.
    std::string running_name;
    std::uint64_t batch;  ///< This and `budget` change with every switch: each unit picked takes
    std::size_t budget;   ///< one from the budget, and a new batch has a new time.
    bool driven;
    bool asleep;
    bool has_timers;
    bool has_pollers;
};
/// All streams. Any thread.
std::vector<stream_seen> list_streams();

}  // namespace amalgam::detail
