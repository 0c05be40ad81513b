// The same questions for Argobots. Checks results where a failure would go unnoticed.
//   argobots QUESTION [SECONDS|OPERATIONSx]
#include <array>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include <abt.h>

#include "perf/pair.hpp"
#include "queens.hpp"
#include "questions.hpp"

namespace {

using namespace amalgam;
using bench::board;
using bench::length;

constexpr std::size_t batch = 1000;

void check(int code) {
    if (code != ABT_SUCCESS)
        throw std::runtime_error("Argobots returned error " + std::to_string(code));
}

/// Argobots with the calling thread as its first stream, and a second one on request.
class streams {
public:
    /// A private pool is the cheapest.
    streams() : streams(1, ABT_SCHED_BASIC, ABT_POOL_FIFO, ABT_POOL_ACCESS_PRIV) {}
    streams(std::size_t many, ABT_sched_predef order, ABT_pool_kind kind, ABT_pool_access access) {
        check(ABT_init(0, nullptr));
        for (std::size_t i = 0; i < many; ++i)
            check(ABT_pool_create_basic(kind, access, ABT_TRUE, &pools_[i]));
        // Only a work-stealing scheduler needs to know the others' pools.
        const int known = order == ABT_SCHED_RANDWS ? static_cast<int>(many) : 1;
        ABT_xstream self;
        check(ABT_xstream_self(&self));
        check(ABT_xstream_set_main_sched_basic(self, order, known, pools_));
        if (many == 2) {
            ABT_pool own_first[] = {pools_[1], pools_[0]};
            check(
                ABT_xstream_create_basic(order, known, own_first, ABT_SCHED_CONFIG_NULL, &second_));
            ABT_thread pins;
            check(ABT_thread_create_on_xstream(
                second_, [](void*) { perf::pin_to_processor(1); }, nullptr, ABT_THREAD_ATTR_NULL,
                &pins));
            check(ABT_thread_free(&pins));
        }
        perf::pin_to_processor(0);  // Overrides Argobots' own choice.
    }
    ~streams() {
        if (second_ != ABT_XSTREAM_NULL) ABT_xstream_free(&second_);
        ABT_finalize();
    }
    streams(const streams&) = delete;
    streams& operator=(const streams&) = delete;

    ABT_pool pool(std::size_t stream) const { return pools_[stream]; }

private:
    ABT_pool pools_[2] = {ABT_POOL_NULL, ABT_POOL_NULL};
    ABT_xstream second_ = ABT_XSTREAM_NULL;
};

void nothing(void*) {}

// Both are in the same function, as threads of a program mostly are: otherwise the processor
// mispredicts every return after a switch, which would be measured, too.
[[gnu::noinline]] void yield_often() {
    for (std::size_t i = 0; i < batch; ++i)
        ABT_self_yield();
}

double yield(const length& how_long) {
    const streams here;
    bool over = false;
    ABT_thread other;
    check(ABT_thread_create(
        here.pool(0),
        [](void* until) {
            while (!*static_cast<bool*>(until))
                yield_often();
        },
        &over, ABT_THREAD_ATTR_NULL, &other));
    const double each = how_long.nanoseconds_each(2 * batch, yield_often);
    over = true;
    check(ABT_thread_free(&other));
    return each;
}

double create_join(const length& how_long) {
    const streams here;
    return how_long.nanoseconds_each(batch, [&] {
        for (std::size_t i = 0; i < batch; ++i) {
            ABT_thread made;
            check(ABT_thread_create(here.pool(0), nothing, nullptr, ABT_THREAD_ATTR_NULL, &made));
            ABT_thread_free(&made);
        }
    });
}

double batches(const length& how_long, ABT_pool there) {
    std::vector<ABT_thread> made(batch);
    return how_long.nanoseconds_each(batch, [&] {
        for (ABT_thread& each : made)
            check(ABT_thread_create(there, nothing, nullptr, ABT_THREAD_ATTR_NULL, &each));
        ABT_thread_free_many(batch, made.data());
    });
}

double create_join_batch(const length& how_long) {
    const streams here;
    return batches(how_long, here.pool(0));
}

double other_stream(const length& how_long) {
    const streams both(2, ABT_SCHED_BASIC, ABT_POOL_FIFO, ABT_POOL_ACCESS_MPSC);
    return batches(how_long, both.pool(1));
}

double tasklet_join(const length& how_long) {
    const streams here;
    std::vector<ABT_task> made(batch);
    return how_long.nanoseconds_each(batch, [&] {
        for (ABT_task& each : made)
            check(ABT_task_create(here.pool(0), nothing, nullptr, &each));
        for (ABT_task& each : made)
            ABT_task_free(&each);
    });
}

/// Without handles: their effect shows that they are done.
double tasklet_post(const length& how_long) {
    const streams here;
    return how_long.nanoseconds_each(batch, [&] {
        std::size_t done = 0;
        for (std::size_t i = 0; i < batch; ++i) {
            check(ABT_task_create(
                here.pool(0), [](void* into) { ++*static_cast<std::size_t*>(into); }, &done,
                nullptr));
        }
        while (done != batch)
            ABT_self_yield();
    });
}

double uncontended_mutex(const length& how_long) {
    const streams here;
    ABT_mutex alone;
    check(ABT_mutex_create(&alone));
    const double each = how_long.nanoseconds_each(batch, [&] {
        for (std::size_t i = 0; i < batch; ++i) {
            ABT_mutex_lock(alone);
            ABT_mutex_unlock(alone);
        }
    });
    check(ABT_mutex_free(&alone));
    return each;
}

struct part {
    board from;
    int found = 0;
};

void count(void* of) {
    auto& here = *static_cast<part*>(of);
    if (!here.from.forks()) {
        here.found = here.from.count();
        return;
    }
    ABT_pool own;
    check(ABT_self_get_last_pool(&own));
    std::array<part, board::size> parts;
    std::array<ABT_thread, board::size> made;
    int n = 0;
    for (std::uint32_t free = here.from.free_columns(); free != 0; free &= free - 1, ++n) {
        parts[n].from = here.from.with(free & -free);
        check(ABT_thread_create(own, count, &parts[n], ABT_THREAD_ATTR_NULL, &made[n]));
    }
    ABT_thread_free_many(n, made.data());
    for (int i = 0; i < n; ++i)
        here.found += parts[i].found;
}

double queens(std::size_t many, const length& how_long) {
#if ABT_NUMVERSION >= 10200000
    constexpr ABT_pool_kind kind = ABT_POOL_RANDWS;
#else
    constexpr ABT_pool_kind kind = ABT_POOL_FIFO;
#endif
    const streams all(many, ABT_SCHED_RANDWS, kind, ABT_POOL_ACCESS_MPMC);
    return how_long.nanoseconds_each(1, [] {
        part whole;
        count(&whole);
        bench::check_queens(whole.found);
    }) / 1e6;
}

double parked_memory(const length&) {
    constexpr std::size_t parked = 100'000;
    const streams here;
    struct waiting_room {
        ABT_eventual over;
        std::size_t arrived = 0;
    } room;
    check(ABT_eventual_create(0, &room.over));
    std::vector<ABT_thread> waiting(parked);
    const std::size_t before = bench::resident_bytes();
    for (ABT_thread& each : waiting) {
        check(ABT_thread_create(
            here.pool(0),
            [](void* in) {
                ++static_cast<waiting_room*>(in)->arrived;
                ABT_eventual_wait(static_cast<waiting_room*>(in)->over, nullptr);
            },
            &room, ABT_THREAD_ATTR_NULL, &each));
    }
    while (room.arrived != parked)
        ABT_self_yield();
    const std::size_t grown = bench::resident_bytes() - before;
    check(ABT_eventual_set(room.over, nullptr, 0));
    for (ABT_thread& each : waiting)
        check(ABT_thread_free(&each));
    check(ABT_eventual_free(&room.over));
    return static_cast<double>(grown) / (1 << 20);
}

constexpr bench::question questions[] = {
    {"yield", yield},
    {"create-join", create_join},
    {"create-join-batch", create_join_batch},
    {"tasklet", tasklet_join},
    {"tasklet-post", tasklet_post},
    {"other-stream", other_stream},
    {"mutex", uncontended_mutex},
    {"nqueens-1", [](const length& l) { return queens(1, l); }},
    {"nqueens-2", [](const length& l) { return queens(2, l); }},
    {"nqueens-speed-up", [](const length& l) { return queens(1, l) / queens(2, l); }},
    {"parked-memory", parked_memory},
};

}  // namespace

int main(int argc, char** argv) {
    return bench::answer_one(argc, argv, questions);
}
