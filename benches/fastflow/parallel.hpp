#pragma once

#include <cstdint>
#include <vector>

#include <ff/ff.hpp>
#include <ff/mdf.hpp>
#include <ff/parallel_for.hpp>

#include "cholesky.hpp"

/// The loop and the graph of tasks of tasks_parallel.hpp, in FastFlow's words. `each_run(run)` says
/// how long one run takes.
namespace amalgam::bench {

template <typename Time>
double fastflow_loop(Time each_run) {
    ff::ParallelFor loops(2);
    cheap_loop loop;
    const double each = each_run([&] {
        loops.parallel_for(0, cheap_loop::iterations, [&](const long i) { loop.step(i); });
    });
    loop.check();
    return each;
}

struct tile_tasks {
    ff::ff_mdf* graph = nullptr;
    tiled_matrix* a = nullptr;
};

inline ff::param_info uses(const double* tile, ff::data_direction_t how) {
    return {reinterpret_cast<std::uintptr_t>(tile), how};
}

inline void add_tasks(tile_tasks* const of) {
    using tile = tiled_matrix::tile;
    std::vector<ff::param_info> named;
    of->a->for_each_step(
        [&](tile t) {
            named = {uses(t, ff::INPUT), uses(t, ff::OUTPUT)};
            of->graph->AddTask(named, tiled_matrix::factor, t);
        },
        [&](tile f, tile t) {
            named = {uses(f, ff::INPUT), uses(t, ff::INPUT), uses(t, ff::OUTPUT)};
            of->graph->AddTask(named, tiled_matrix::solve, f, t);
        },
        [&](tile l, tile r, tile t) {
            named = {uses(l, ff::INPUT), uses(r, ff::INPUT), uses(t, ff::INPUT),
                     uses(t, ff::OUTPUT)};
            of->graph->AddTask(named, tiled_matrix::update, l, r, t);
        });
}

template <typename Time>
double fastflow_cholesky(Time each_run) {
    tiled_matrix a;
    tile_tasks of;
    of.a = &a;
    const double each = each_run([&] {
        ff::ff_mdf graph(add_tasks, &of, 2048, 2);
        of.graph = &graph;
        a.fill();
        graph.run_and_wait_end();
    });
    a.check();
    return each;
}

}  // namespace amalgam::bench
