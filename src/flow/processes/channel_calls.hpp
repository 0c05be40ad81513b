#pragma once

#include <cstdint>
#include <string>

#include "flow/channel/channel_set.hpp"
#include "flow/processes/neighbors.hpp"

namespace amalgam::detail {

/// Serves the neighbors' calls about channels: batches, credits and ends. A caller may speak for
/// itself only, and one that breaks the protocol ends the run.
///
/// Owner:   borrows everything; the engine must be stopped first.
/// Threads: the engine's ULTs.
class channel_calls {
public:
    channel_calls(run_context& run, channel_set& channels, neighbors& others);
    channel_calls(const channel_calls&) = delete;
    channel_calls& operator=(const channel_calls&) = delete;

private:
    void take_batch(std::uint32_t edge, std::uint32_t replica, std::uint64_t number,
                    channel_in::batch what);
    void take_credit(std::uint32_t edge, std::uint32_t replica, std::uint64_t bytes,
                     std::uint64_t items);
    std::string take_end(std::uint32_t edge, std::uint32_t replica, std::uint64_t batches,
                         std::uint64_t items);

    run_context& run_;
    channel_set& channels_;
    neighbors& others_;
};

}  // namespace amalgam::detail
