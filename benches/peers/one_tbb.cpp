// The same questions for oneTBB, whose tasks run to completion on a thread's stack.
//   one_tbb QUESTION [SECONDS|OPERATIONSx]
#include <array>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <stdexcept>

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_pipeline.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_group.h>
#include <oneapi/tbb/task_scheduler_observer.h>

#include "perf/pair.hpp"
#include "queens.hpp"
#include "questions.hpp"
#include "tasks_parallel.hpp"

namespace {

using namespace amalgam;
using bench::board;
using bench::length;
namespace tbb = oneapi::tbb;

constexpr std::size_t batch = 1000;

/// Pins an arena's worker to the second processor; the caller stays on the first.
class pinned_worker : public tbb::task_scheduler_observer {
public:
    explicit pinned_worker(tbb::task_arena& of) : task_scheduler_observer(of) { observe(true); }
    ~pinned_worker() override { observe(false); }
    void on_scheduler_entry(bool is_worker) override {
        if (is_worker) perf::pin_to_processor(1);
    }
};

double batches(const length& how_long) {
    tbb::task_arena arena(1);
    return arena.execute([&] {
        tbb::task_group group;
        return how_long.nanoseconds_each(batch, [&] {
            for (std::size_t i = 0; i < batch; ++i)
                group.run([] {});
            group.wait();
        });
    });
}

double other_stream(const length& how_long) {
    const tbb::global_control threads(tbb::global_control::max_allowed_parallelism, 2);
    tbb::task_arena there(1, 0);
    const pinned_worker pinned(there);
    tbb::task_group group;
    return how_long.nanoseconds_each(batch, [&] {
        for (std::size_t i = 0; i < batch; ++i)
            there.enqueue(group.defer([] {}));
        group.wait();
    });
}

int count(board here) {
    if (!here.forks()) return here.count();
    std::array<int, board::size> found{};
    tbb::task_group parts;
    std::size_t n = 0;
    for (std::uint32_t free = here.free_columns(); free != 0; free &= free - 1, ++n)
        parts.run([next = here.with(free & -free), into = &found[n]] { *into = count(next); });
    parts.wait();
    return std::accumulate(found.begin(), found.end(), 0);
}

double queens(int threads, const length& how_long) {
    const tbb::global_control at_most(tbb::global_control::max_allowed_parallelism, 2);
    tbb::task_arena arena(threads);
    const pinned_worker pinned(arena);
    return arena.execute([&] {
        return how_long.nanoseconds_each(1, [] { bench::check_queens(count(board{})); }) / 1e6;
    });
}

/// One stream of the graphs in benches/flow.cpp, per item and hop. `run()` returns the sum of the
/// output, computed by an arena of two threads.
template <typename Run>
double stream(std::uint64_t items, std::uint64_t stages, double hops, Run run) {
    const tbb::global_control at_most(tbb::global_control::max_allowed_parallelism, 2);
    tbb::task_arena arena(2);
    const pinned_worker pinned(arena);
    return arena.execute([&] {
        const auto first = std::chrono::steady_clock::now();
        const std::uint64_t sum = run();
        const auto took = std::chrono::steady_clock::now() - first;
        if (sum != items * (items - 1) / 2 + items * stages)
            throw std::runtime_error("not every item arrived");
        return std::chrono::duration<double, std::nano>(took).count() / static_cast<double>(items) /
               hops;
    });
}

constexpr std::uint64_t stream_items = 5000000;
constexpr std::uint64_t chain_items = 20000;
constexpr std::uint64_t chain_stages = 1000;
// In flight at once: as many as our queues hold. Fewer make it slower.
constexpr std::size_t tokens = 1024;

constexpr auto plus_one = [](std::uint64_t n) { return n + 1; };

/// A source, filters that add one, and a sink. Nodes of a flow graph do the same, but slower.
std::uint64_t pipeline(std::uint64_t items, std::uint64_t stages, tbb::filter_mode middle,
                       tbb::filter_mode last) {
    std::uint64_t next = 0, sum = 0;
    auto so_far = tbb::make_filter<void, std::uint64_t>(
        tbb::filter_mode::serial_in_order, [&](tbb::flow_control& control) -> std::uint64_t {
            if (next == items) control.stop();
            return next++;
        });
    for (std::uint64_t i = 0; i < stages; ++i)
        so_far = so_far & tbb::make_filter<std::uint64_t, std::uint64_t>(middle, plus_one);
    tbb::parallel_pipeline(tokens, so_far & tbb::make_filter<std::uint64_t, void>(
                                                last, [&](std::uint64_t n) { sum += n; }));
    return sum;
}

constexpr auto in_order = tbb::filter_mode::serial_in_order;

constexpr bench::question questions[] = {
    {"flow-pipeline",
     [](const length&) {
         return stream(stream_items, 0, 1,
                       [] { return pipeline(stream_items, 0, in_order, in_order); });
     }},
    {"flow-stages1000",
     [](const length&) {
         return stream(chain_items, chain_stages, chain_stages + 1,
                       [] { return pipeline(chain_items, chain_stages, in_order, in_order); });
     }},
    {"flow-farm",
     [](const length&) {
         return stream(stream_items, 1, 1, [] {
             return pipeline(stream_items, 1, tbb::filter_mode::parallel,
                             tbb::filter_mode::serial_out_of_order);
         });
     }},
    {"create-join-batch", batches},
    {"tasklet", batches},
    {"tasklet-post", batches},
    {"other-stream", other_stream},
    {"parallel-for", bench::parallel_loop},
    {"cholesky", bench::tile_graph},
    {"nqueens-1", [](const length& l) { return queens(1, l); }},
    {"nqueens-2", [](const length& l) { return queens(2, l); }},
    {"nqueens-speed-up", [](const length& l) { return queens(1, l) / queens(2, l); }},
};

}  // namespace

int main(int argc, char** argv) {
    return bench::answer_one(argc, argv, questions);
}
