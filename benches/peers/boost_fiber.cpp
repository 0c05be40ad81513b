// The same questions for Boost.Fiber.
//   boost_fiber QUESTION [SECONDS|OPERATIONSx]
#include <array>
#include <latch>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include <boost/fiber/all.hpp>
#include <malloc.h>

#include "perf/pair.hpp"
#include "queens.hpp"
#include "questions.hpp"

namespace {

using namespace amalgam;
using bench::board;
using bench::length;
namespace fibers = boost::fibers;
using fibers::fiber;
using fibers::launch;

constexpr std::size_t batch = 1000;

// Both are in the same function, as threads of a program mostly are: otherwise the processor
// mispredicts every return after a switch, which would be measured, too.
[[gnu::noinline]] void yield_often() {
    for (std::size_t i = 0; i < batch; ++i)
        boost::this_fiber::yield();
}

double yield(const length& how_long) {
    bool over = false;
    fiber other([&] {
        while (!over)
            yield_often();
    });
    const double each = how_long.nanoseconds_each(2 * batch, yield_often);
    over = true;
    other.join();
    return each;
}

// The cheapest of its stacks, when used by one thread. The faster launch policy was tried for each
// question.

double create_join(const length& how_long) {
    fibers::pooled_fixedsize_stack stacks;
    return how_long.nanoseconds_each(batch, [&] {
        for (std::size_t i = 0; i < batch; ++i)
            fiber(launch::dispatch, std::allocator_arg, stacks, [] {}).join();
    });
}

double create_join_batch(const length& how_long) {
    fibers::pooled_fixedsize_stack stacks;
    std::vector<fiber> made(batch);
    return how_long.nanoseconds_each(batch, [&] {
        for (fiber& each : made)
            each = fiber(launch::post, std::allocator_arg, stacks, [] {});
        for (fiber& each : made)
            each.join();
    });
}

/// A fiber is always created by its own thread: the other one is asked to through a channel, and
/// the last fiber of a batch answers for all.
double other_stream(const length& how_long) {
    fibers::buffered_channel<bool> wanted(1024), answers(2);
    std::thread there([&] {
        perf::pin_to_processor(1);
        fibers::pooled_fixedsize_stack stacks;
        for (bool last = false; wanted.pop(last) == fibers::channel_op_status::success;) {
            fiber(launch::dispatch, std::allocator_arg, stacks, [&answers, last] {
                if (last) answers.push(true);
            }).detach();
        }
    });
    const double each = how_long.nanoseconds_each(batch, [&] {
        for (std::size_t i = 1; i <= batch; ++i)
            wanted.push(i == batch);
        answers.value_pop();
    });
    wanted.close();
    there.join();
    return each;
}

double uncontended_mutex(const length& how_long) {
    fibers::mutex alone;
    return how_long.nanoseconds_each(batch, [&] {
        for (std::size_t i = 0; i < batch; ++i) {
            alone.lock();
            alone.unlock();
        }
    });
}

/// A number passes back and forth, incremented at each hop, until it is `last`. Both are in here,
/// as in yield_often(). The unbuffered channel is the faster one here.
using hop_channel = fibers::unbuffered_channel<std::size_t>;
[[gnu::noinline]] void pass_on(hop_channel& from, hop_channel& to, std::size_t last) {
    for (std::size_t hops = 0; from.pop(hops) == fibers::channel_op_status::success;) {
        if (hops == last) return;
        to.push(hops + 1);
    }
}

double channel_hop(const length& how_long) {
    hop_channel there, back;
    fiber other([&] { pass_on(there, back, SIZE_MAX); });
    const double each = how_long.nanoseconds_each(2 * batch, [&] {
        there.push(0);
        pass_on(back, there, 2 * batch - 1);
    });
    there.close();
    other.join();
    return each;
}

int count(board here, fibers::fixedsize_stack stacks) {
    if (!here.forks()) return here.count();
    std::array<int, board::size> found{};
    std::array<fiber, board::size> parts;
    std::size_t n = 0;
    for (std::uint32_t free = here.free_columns(); free != 0; free &= free - 1, ++n) {
        parts[n] = fiber(launch::dispatch, std::allocator_arg, stacks,
                         [stacks, next = here.with(free & -free), into = &found[n]] {
                             *into = count(next, stacks);
                         });
    }
    for (std::size_t i = 0; i < n; ++i)
        parts[i].join();
    return std::accumulate(found.begin(), found.end(), 0);
}

/// Once per process: work-stealing schedulers are kept in a static list.
double queens_on_two(const length& how_long) {
    // Stacks are freed on any thread; without this malloc would call the kernel.
    ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
    ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
    const fibers::fixedsize_stack stacks(64 * 1024);

    constexpr std::uint32_t threads = 2;
    std::latch both_are_there(threads);
    fibers::mutex changing;
    fibers::condition_variable changed;
    bool over = false;
    std::thread thief([&] {
        perf::pin_to_processor(1);
        fibers::use_scheduling_algorithm<fibers::algo::work_stealing>(threads);
        both_are_there.arrive_and_wait();
        std::unique_lock lock(changing);
        changed.wait(lock, [&] { return over; });
    });
    fibers::use_scheduling_algorithm<fibers::algo::work_stealing>(threads);
    both_are_there.arrive_and_wait();
    const double each =
        how_long.nanoseconds_each(1, [&] { bench::check_queens(count(board{}, stacks)); });
    {
        const std::lock_guard lock(changing);
        over = true;
    }
    changed.notify_all();
    thief.join();
    return each / 1e6;
}

double parked_memory(const length&) {
    constexpr std::size_t parked = 100'000;
    fibers::mutex changing;
    fibers::condition_variable changed;
    bool over = false;
    std::vector<fiber> waiting(parked);
    const std::size_t before = bench::resident_bytes();
    for (fiber& each : waiting) {
        each = fiber(launch::dispatch, [&] {
            std::unique_lock lock(changing);
            changed.wait(lock, [&] { return over; });
        });
    }
    const std::size_t grown = bench::resident_bytes() - before;
    over = true;
    changed.notify_all();
    for (fiber& each : waiting)
        each.join();
    return static_cast<double>(grown) / (1 << 20);
}

constexpr bench::question questions[] = {
    {"yield", yield},
    {"create-join", create_join},
    {"create-join-batch", create_join_batch},
    {"other-stream", other_stream},
    {"mutex", uncontended_mutex},
    {"channel-hop", channel_hop},
    {"nqueens-2", queens_on_two},
    {"parked-memory", parked_memory},
};

}  // namespace

int main(int argc, char** argv) {
    return bench::answer_one(argc, argv, questions);
}
