#include <deque>
#include <map>

#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/flow_graph.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_scheduler_observer.h>

#include "cholesky.hpp"
#include "perf/pair.hpp"
#include "tasks_parallel.hpp"

namespace amalgam::bench {

namespace {

namespace tbb = oneapi::tbb;

/// An arena of two: the caller, and a worker pinned to the second processor.
class two_processors : public tbb::task_scheduler_observer {
public:
    explicit two_processors(tbb::task_arena& of) : task_scheduler_observer(of) { observe(true); }
    ~two_processors() override { observe(false); }
    void on_scheduler_entry(bool is_worker) override {
        if (is_worker) perf::pin_to_processor(1);
    }

private:
    tbb::global_control at_most_{tbb::global_control::max_allowed_parallelism, 2};
};

using node = tbb::flow::continue_node<tbb::flow::continue_msg>;

/// The order of tasks that use the same tiles, as edges of a flow graph that is made once.
class tile_nodes {
public:
    template <typename Body>
    void add(std::initializer_list<double*> reads, double* writes, Body body) {
        node& made =
            nodes_.emplace_back(graph_, [body](const tbb::flow::continue_msg&) { body(); });
        bool first = true;
        for (double* each : reads) {
            auto& use = uses_[each];
            if (use.writer != nullptr) first = false, tbb::flow::make_edge(*use.writer, made);
            use.readers.push_back(&made);
        }
        auto& use = uses_[writes];
        for (node* each : use.readers)
            first = false, tbb::flow::make_edge(*each, made);
        if (use.readers.empty() && use.writer != nullptr)
            first = false, tbb::flow::make_edge(*use.writer, made);
        use = {&made, {}};
        if (first) starts_.push_back(&made);
    }
    void run() {
        for (node* each : starts_)
            each->try_put({});
        graph_.wait_for_all();
    }

private:
    struct use_of_tile {
        node* writer = nullptr;
        std::vector<node*> readers = {};
    };
    tbb::flow::graph graph_;
    std::deque<node> nodes_;
    std::vector<node*> starts_;
    std::map<double*, use_of_tile> uses_;
};

}  // namespace

double parallel_loop(const length& how_long) {
    tbb::task_arena arena(2);
    const two_processors pinned(arena);
    cheap_loop loop;
    const double each = arena.execute([&] {
        return how_long.nanoseconds_each(1, [&] {
            tbb::parallel_for(tbb::blocked_range<long>(0, cheap_loop::iterations),
                              [&](const tbb::blocked_range<long>& part) {
                                  for (long i = part.begin(); i != part.end(); ++i)
                                      loop.step(i);
                              });
        });
    });
    loop.check();
    return each / 1e6;
}

/// The graph is made anew each time, as ours is: the program says its tasks as it goes.
double tile_graph(const length& how_long) {
    tbb::task_arena arena(2);
    const two_processors pinned(arena);
    tiled_matrix a;
    using tile = tiled_matrix::tile;
    const double each = arena.execute([&] {
        return how_long.nanoseconds_each(1, [&] {
            a.fill();
            tile_nodes nodes;
            a.for_each_step(
                [&](tile t) { nodes.add({}, t, [t] { tiled_matrix::factor(t); }); },
                [&](tile f, tile t) { nodes.add({f}, t, [f, t] { tiled_matrix::solve(f, t); }); },
                [&](tile l, tile r, tile t) {
                    nodes.add({l, r}, t, [l, r, t] { tiled_matrix::update(l, r, t); });
                });
            nodes.run();
        });
    });
    a.check();
    return each / 1e6;
}

}  // namespace amalgam::bench
