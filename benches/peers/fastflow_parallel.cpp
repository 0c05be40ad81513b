// The same loop and the same graph of tasks on FastFlow: `bench_fastflow_parallel parallel-for`.
#include <cstdint>
#include <vector>

#include <ff/ff.hpp>
#include <ff/mdf.hpp>
#include <ff/parallel_for.hpp>

#include "cholesky.hpp"
#include "questions.hpp"

namespace {

using namespace amalgam;
using bench::cheap_loop;
using bench::length;
using bench::tiled_matrix;

double parallel_loop(const length& how_long) {
    ff::ParallelFor loops(2);
    cheap_loop loop;
    const double each = how_long.nanoseconds_each(1, [&] {
        loops.parallel_for(0, cheap_loop::iterations, [&](const long i) { loop.step(i); });
    });
    loop.check();
    return each / 1e6;
}

struct tasks_of {
    ff::ff_mdf* graph = nullptr;
    tiled_matrix* a = nullptr;
};

ff::param_info uses(const double* tile, ff::data_direction_t how) {
    return {reinterpret_cast<std::uintptr_t>(tile), how};
}

void add_tasks(tasks_of* const of) {
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

double tile_graph(const length& how_long) {
    tiled_matrix a;
    tasks_of of;
    of.a = &a;
    const double each = how_long.nanoseconds_each(1, [&] {
        ff::ff_mdf graph(add_tasks, &of, 2048, 2);
        of.graph = &graph;
        a.fill();
        graph.run_and_wait_end();
    });
    a.check();
    return each / 1e6;
}

constexpr bench::question questions[] = {
    {"parallel-for", parallel_loop},
    {"cholesky", tile_graph},
};

}  // namespace

int main(int argc, char** argv) {
    return bench::answer_one(argc, argv, questions);
}
