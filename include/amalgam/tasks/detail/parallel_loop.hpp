#pragma once

#include <cstddef>

#include <amalgam/tasks/parallel_options.hpp>
#include <amalgam/tasks/parallel_streams.hpp>

namespace amalgam::detail {

/// What a loop of `count` iterations does, numbered from 0.
struct loop_plan {
    const parallel_streams& where;
    const parallel_options& options;
    std::size_t count;
    bool caller_takes_part;
    std::size_t streams;  ///< The caller's thread included, if it takes part.
    std::size_t grain;
    std::size_t parts;  ///< Numbers that a chunk may be given are below this.
};
loop_plan plan_loop(const parallel_streams& where, std::size_t count,
                    const parallel_options& options);

/// Runs one chunk: iterations `first` to `last` - 1. No two chunks with the same `part` at a time.
struct loop_body {
    void* what;
    void (*run)(void* what, std::size_t first, std::size_t last, std::size_t part);
};
void run_loop(const loop_plan& plan, loop_body body);

template <typename Chunk>
loop_body body_of(Chunk& chunk) noexcept {
    return {&chunk, [](void* what, std::size_t first, std::size_t last, std::size_t part) {
                (*static_cast<Chunk*>(what))(first, last, part);
            }};
}

[[noreturn]] void refuse_step();

/// first, first + step, ... below last. In unsigned arithmetic: the distance of two signed numbers
/// may be more than the largest of them. The step keeps its own type until it is known to be
/// positive: it may not fit an Index, or be negative where that is unsigned.
template <typename Index>
struct index_sequence {
    std::size_t first;
    std::size_t step;
    std::size_t count = 0;

    template <typename Step>
    index_sequence(Index from, Index to, Step by)
        : first(static_cast<std::size_t>(from)), step(static_cast<std::size_t>(by)) {
        if (by < Step{1}) refuse_step();
        if (from < to) count = (static_cast<std::size_t>(to) - first - 1) / step + 1;
    }
    Index operator[](std::size_t i) const noexcept { return static_cast<Index>(first + i * step); }
};

}  // namespace amalgam::detail
