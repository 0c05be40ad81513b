// The same questions on oneTBB, whose tasks run to their end on the stack of a thread.
//   one_tbb QUESTION [SECONDS|OPERATIONSx]
#include <array>
#include <numeric>

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_group.h>
#include <oneapi/tbb/task_scheduler_observer.h>

#include "perf/pair.hpp"
#include "queens.hpp"
#include "questions.hpp"

namespace {

using namespace amalgam;
using bench::board;
using bench::length;
namespace tbb = oneapi::tbb;

constexpr std::size_t batch = 1000;

/// Keeps the worker of an arena to the second processor; the caller stays on the first.
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

constexpr bench::question questions[] = {
    {"create-join-batch", batches},
    {"tasklet", batches},
    {"tasklet-post", batches},
    {"other-stream", other_stream},
    {"nqueens-1", [](const length& l) { return queens(1, l); }},
    {"nqueens-2", [](const length& l) { return queens(2, l); }},
    {"nqueens-speed-up", [](const length& l) { return queens(1, l) / queens(2, l); }},
};

}  // namespace

int main(int argc, char** argv) {
    return bench::answer_one(argc, argv, questions);
}
