// The same questions for OS threads, as far as they apply.
//   std_thread QUESTION [SECONDS|OPERATIONSx]
#include <mutex>
#include <thread>
#include <vector>

#include "perf/pair.hpp"
#include "questions.hpp"

namespace {

using namespace amalgam;
using bench::length;

double create_join(const length& how_long) {
    return how_long.nanoseconds_each(1, [] { std::thread([] {}).join(); });
}

double batches(const length& how_long, int processor) {
    constexpr std::size_t batch = 1000;
    perf::pin_to_processor(processor);  // Inherited by new threads.
    std::vector<std::thread> made(batch);
    return how_long.nanoseconds_each(batch, [&] {
        for (std::thread& each : made)
            each = std::thread([] {});
        for (std::thread& each : made)
            each.join();
    });
}

double uncontended_mutex(const length& how_long) {
    // The C library skips atomics while a process has only one thread.
    std::mutex alone, held;
    held.lock();
    std::jthread second([&] { const std::lock_guard hold(held); });
    constexpr std::size_t batch = 1000;
    const double each = how_long.nanoseconds_each(batch, [&] {
        for (std::size_t i = 0; i < batch; ++i) {
            alone.lock();
            alone.unlock();
        }
    });
    held.unlock();
    return each;
}

constexpr bench::question questions[] = {
    {"create-join", create_join},
    {"create-join-batch", [](const length& l) { return batches(l, 0); }},
    {"mutex", uncontended_mutex},
};

}  // namespace

int main(int argc, char** argv) {
    return bench::answer_one(argc, argv, questions);
}
