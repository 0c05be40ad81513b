#include "tasks_parallel.hpp"

#include <sched.h>

#include <amalgam/tasks/parallel_for.hpp>
#include <amalgam/tasks/task_graph.hpp>
#include <amalgam/tasks/ult.hpp>
#include <amalgam/tasks/work_stealing_team.hpp>

#include "cholesky.hpp"
#include "perf/pair.hpp"

namespace amalgam::bench {

namespace {

/// The program is pinned to the first processor; streams may then be bound to the second, too.
void use_two_processors() {
    cpu_set_t both;
    CPU_ZERO(&both);
    CPU_SET(0, &both);
    CPU_SET(1, &both);
    sched_setaffinity(0, sizeof both, &both);
}

}  // namespace

double parallel_loop(const length& how_long) {
    use_two_processors();
    work_stealing_team team(1, {.cpu = 1});  // and the caller
    perf::pin_to_processor(0);
    cheap_loop loop;
    const double each = how_long.nanoseconds_each(
        1, [&] { parallel_for(team, 0L, cheap_loop::iterations, [&](long i) { loop.step(i); }); });
    loop.check();
    return each / 1e6;
}

double tile_graph(const length& how_long) {
    use_two_processors();
    work_stealing_team team(2, {.cpu = 0});
    task_graph graph(team);
    tiled_matrix a;
    using tile = tiled_matrix::tile;
    double each = 0;
    const auto factor_all = [&] {
        a.fill();
        a.for_each_step(
            [&](tile t) { graph.add({graph.inout(*t)}, [t] { tiled_matrix::factor(t); }); },
            [&](tile f, tile t) {
                graph.add({graph.in(*f), graph.inout(*t)}, [f, t] { tiled_matrix::solve(f, t); });
            },
            [&](tile l, tile r, tile t) {
                graph.add({graph.in(*l), graph.in(*r), graph.inout(*t)},
                          [l, r, t] { tiled_matrix::update(l, r, t); });
            });
        graph.wait();
    };
    spawn(team.main_pool(), [&] { each = how_long.nanoseconds_each(1, factor_all); }).join();
    a.check();
    return each / 1e6;
}

}  // namespace amalgam::bench
