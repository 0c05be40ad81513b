// Cost of ULTs: switching, creating and joining, here or on another stream, locking and handing
// over; a parallel search on one stream and on two; and memory of many ULTs.
//   tasks QUESTION [SECONDS|OPERATIONSx]
#include <cstdint>
#include <vector>

#include <amalgam/tasks/channel.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/mutex.hpp>
#include <amalgam/tasks/tasklet.hpp>
#include <amalgam/tasks/ult.hpp>

#include "perf/pair.hpp"
#include "questions.hpp"
#include "tasks_memory.hpp"
#include "tasks_parallel.hpp"
#include "tasks_queens.hpp"

namespace {

using namespace amalgam;
using bench::length;

constexpr std::size_t batch = 1000;

/// Result of `body()` in a ULT of `where`.
template <typename Body>
double in_ult(execution_stream& where, Body&& body) {
    double value = 0;
    spawn(where, [&] { value = body(); }).join();
    return value;
}

// Both are in the same function, as threads of a program mostly are: otherwise the processor
// mispredicts every return after a switch, which would be measured, too.
[[gnu::noinline]] void yield_often() {
    for (std::size_t i = 0; i < batch; ++i)
        this_task::yield();
}

double yield(const length& how_long) {
    execution_stream stream;
    return in_ult(stream, [&] {
        bool over = false;
        ult other = spawn(stream, [&] {
            while (!over)
                yield_often();
        });
        const double each = how_long.nanoseconds_each(2 * batch, yield_often);
        over = true;
        return each;
    });
}

double create_join(const length& how_long) {
    execution_stream stream;
    return in_ult(stream, [&] {
        return how_long.nanoseconds_each(batch, [&] {
            for (std::size_t i = 0; i < batch; ++i)
                spawn(stream, [] {}).join();
        });
    });
}

/// From a ULT of `here`: creates a batch in `there`, then joins it.
double batches(const length& how_long, execution_stream& here, execution_stream& there) {
    return in_ult(here, [&] {
        std::vector<ult> made(batch);
        return how_long.nanoseconds_each(batch, [&] {
            for (ult& each : made)
                each = spawn(there, [] {});
            for (ult& each : made)
                each.join();
        });
    });
}

double create_join_batch(const length& how_long) {
    execution_stream stream;
    return batches(how_long, stream, stream);
}

double other_stream(const length& how_long) {
    execution_stream here;
    perf::pin_to_processor(1);
    execution_stream there;
    return batches(how_long, here, there);
}

double tasklet_join(const length& how_long) {
    execution_stream stream;
    return in_ult(stream, [&] {
        std::vector<tasklet> made(batch);
        return how_long.nanoseconds_each(batch, [&] {
            for (tasklet& each : made)
                each = spawn_tasklet(stream, [] {});
            for (tasklet& each : made)
                each.join();
        });
    });
}

/// Without handles: their effect shows that they are done.
double tasklet_post(const length& how_long) {
    execution_stream stream;
    return in_ult(stream, [&] {
        return how_long.nanoseconds_each(batch, [&] {
            std::size_t done = 0;
            for (std::size_t i = 0; i < batch; ++i)
                post_tasklet(stream, [&] { ++done; });
            while (done != batch)
                this_task::yield();
        });
    });
}

double uncontended_mutex(const length& how_long) {
    execution_stream stream;
    return in_ult(stream, [&] {
        mutex alone;
        return how_long.nanoseconds_each(batch, [&] {
            for (std::size_t i = 0; i < batch; ++i) {
                alone.lock();
                alone.unlock();
            }
        });
    });
}

/// A number passes back and forth, incremented at each hop, until it is `last`. Both are in here,
/// as in yield_often().
[[gnu::noinline]] void pass_on(channel<std::size_t>& from, channel<std::size_t>& to,
                               std::size_t last) {
    for (const std::size_t hops : from) {
        if (hops == last) return;
        to.push(hops + 1);
    }
}

/// Unbuffered, so each hop is a switch.
double channel_hop(const length& how_long) {
    execution_stream stream;
    return in_ult(stream, [&] {
        channel<std::size_t> there(1), back(1);
        const ult other = spawn(stream, [&] { pass_on(there, back, SIZE_MAX); });
        const double each = how_long.nanoseconds_each(2 * batch, [&] {
            there.push(0);
            pass_on(back, there, 2 * batch - 1);
        });
        there.close();
        return each;
    });
}

constexpr bench::question questions[] = {
    {"yield", yield},
    {"create-join", create_join},
    {"create-join-batch", create_join_batch},
    {"tasklet", tasklet_join},
    {"tasklet-post", tasklet_post},
    {"other-stream", other_stream},
    {"mutex", uncontended_mutex},
    {"channel-hop", channel_hop},
    {"nqueens-1", [](const length& l) { return bench::queens(1, l); }},
    {"nqueens-2", [](const length& l) { return bench::queens(2, l); }},
    {"nqueens-speed-up", [](const length& l) { return bench::queens(1, l) / bench::queens(2, l); }},
    {"parallel-for", bench::parallel_loop},
    {"cholesky", bench::tile_graph},
    {"parked-memory", [](const length&) { return bench::parked_memory(); }},
    {"creation-growth", [](const length&) { return bench::creation_growth(); }},
};

}  // namespace

int main(int argc, char** argv) {
    return bench::answer_one(argc, argv, questions);
}
