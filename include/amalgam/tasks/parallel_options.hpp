#pragma once

#include <cstddef>
#include <cstdint>
#include <stop_token>

namespace amalgam {

/// How the iterations of a parallel loop are cut into chunks. A chunk runs in order, in one ULT.
enum class partition : std::uint8_t {
    automatic,  ///< Large chunks first, then smaller ones, down to `grain`. For most loops.
    dynamic,    ///< Chunks of `grain` iterations, in turn to whoever is free.
    fixed       ///< One part for each task: part t is a block, or with a grain, the chunks t,
                ///< t + tasks, ... The cut depends on the options only.
};

/// Options of a parallel loop. Every field has a usable default.
struct parallel_options {
    partition how = partition::automatic;  ///< How iterations are divided among tasks.
    /// Iterations in a chunk, with `automatic` at least. 0: 1, with `fixed` an equal part for each.
    std::size_t grain = 0;
    /// ULTs that take part at most, those that wait in the body included. 0: with `fixed` as many
    /// as there are streams (one more if a plain thread calls), else 64 more than that.
    std::size_t tasks = 0;
    /// Once this is requested, no further chunk begins, and the loop throws error{canceled} if
    /// there was one.
    std::stop_token stop = {};
};

}  // namespace amalgam
