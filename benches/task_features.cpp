// Costs of the rarer operations on work units: handing over by name, suspending, reviving, moving,
// asking, waiting for several. All on one driven stream, so that instructions can be counted:
//   count_instructions bench_task_features QUESTION
//   task_features QUESTION [SECONDS|OPERATIONSx]
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <amalgam/tasks.hpp>

#include "questions.hpp"

namespace {

using namespace amalgam;
using bench::length;

constexpr std::size_t batch = 1000;

/// Per turn of both ULTs on a driven stream: one runs `other` all the time, one `loop` to be
/// counted.
template <typename Other, typename Loop>
double beside(const length& how_long, Other other, Loop loop) {
    execution_stream stream({.driven = true});
    double each = 0;
    bool over = false;
    ult partner, mine;
    partner = spawn(stream, [&] {
        while (!over)
            other(mine);
    });
    mine = spawn(stream, [&] {
        each = how_long.nanoseconds_each(batch, [&] {
            for (std::size_t i = 0; i < batch; ++i)
                loop(partner);
        });
        over = true;
        partner.resume();
    });
    while (stream.run_ready() != 0)
        continue;
    partner.join();
    mine.join();
    return each;
}

template <typename Loop>
double alone(const length& how_long, Loop loop) {
    execution_stream stream({.driven = true});
    double each = 0;
    ult mine = spawn(stream, [&] {
        each = how_long.nanoseconds_each(batch, [&] {
            for (std::size_t i = 0; i < batch; ++i)
                loop(stream);
        });
    });
    while (stream.run_ready() != 0)
        continue;
    mine.join();
    return each;
}

double suspend_resume(const length& l) {
    return beside(
        l, [](ult&) { this_task::suspend(); },
        [](ult& partner) {
            partner.resume();
            this_task::yield();
        });
}

double yield_to(const length& l) {
    return beside(
        l, [](ult& mine) { this_task::yield_to(mine.ref()); },
        [](ult& partner) { this_task::yield_to(partner.ref()); });
}

double suspend_to(const length& l) {
    const auto turn = [](ult& other) {
        other.resume();
        this_task::suspend_to(other.ref());
    };
    return beside(l, turn, turn);
}

double spawn_to_join(const length& l) {
    return alone(l, [](execution_stream& stream) { spawn_to(stream, [] {}).join(); });
}

double spawn_join(const length& l) {
    return alone(l, [](execution_stream& stream) { spawn(stream, [] {}).join(); });
}

double revive(const length& l) {
    ult again;
    const double each = alone(l, [&](execution_stream& stream) {
        if (again.joinable()) {
            again.revive(stream, [] {});
        } else {
            again = spawn(stream, [] {});
        }
        again.wait();
    });
    again.join();
    return each;
}

double tasklet_join(const length& l) {
    return alone(l, [](execution_stream& stream) { spawn_tasklet(stream, [] {}).join(); });
}

double revive_tasklet(const length& l) {
    tasklet again;
    const double each = alone(l, [&](execution_stream& stream) {
        if (again.joinable()) {
            again.revive(stream, [] {});
        } else {
            again = spawn_tasklet(stream, [] {});
        }
        again.wait();
    });
    again.join();
    return each;
}

double id_and_state(const length& l) {
    ult asked;
    std::uint64_t sum = 0;
    const double each = alone(l, [&](execution_stream& stream) {
        if (!asked.joinable()) asked = spawn(stream, [] {});
        sum += asked.id() + static_cast<std::uint64_t>(asked.state());
    });
    asked.join();
    return sum == 0 ? 1 : each;
}

double lock_with_priority(const length& l) {
    mutex one;
    return alone(l, [&](execution_stream&) {
        one.lock(lock_priority::low);
        one.unlock();
    });
}

double unlock_and_yield(const length& l) {
    mutex one;
    return alone(l, [&](execution_stream&) {
        one.lock();
        one.unlock_and_yield();
    });
}

/// Two futures and their ends, with `wait` in between.
template <typename Wait>
double two_futures(const length& l, Wait wait) {
    return alone(l, [&](execution_stream&) {
        promise<int> a, b;
        future<int> first = a.get_future(), second = b.get_future();
        a.set_value(1);
        b.set_value(2);
        wait(first, second);
        (void)first.get();
        (void)second.get();
    });
}

double futures_alone(const length& l) {
    return two_futures(l, [](future<int>&, future<int>&) {});
}

double futures_wait_any(const length& l) {
    return two_futures(l, [](future<int>& a, future<int>& b) { (void)wait_any(a, b); });
}

double futures_wait_all(const length& l) {
    return two_futures(l, [](future<int>& a, future<int>& b) { wait_all(a, b); });
}

/// To the pool of another stream and back, per move.
double migrate(const length& l) {
    fifo_pool other;
    execution_stream there(std::make_unique<basic_scheduler>(std::vector<pool*>{&other}),
                           {.driven = true});
    execution_stream stream({.driven = true});
    double each = 0;
    ult mine = spawn(stream, [&] {
        each = l.nanoseconds_each(batch, [&] {
            for (std::size_t i = 0; i < batch; i += 2) {
                this_task::migrate(other);
                this_task::migrate(stream.main_pool());
            }
        });
    });
    while (stream.run_ready() + there.run_ready() != 0)
        continue;
    mine.join();
    return each;
}

/// Out of a pool and back into it, per unit, by `turn`, which moves 50.
template <typename Turn>
double in_pool(const length& l, Turn turn) {
    fifo_pool where;
    execution_stream stream(std::make_unique<basic_scheduler>(std::vector<pool*>{&where}),
                            {.driven = true});
    for (int i = 0; i < 50; ++i)
        post(where, [] {});
    const double each = l.nanoseconds_each(batch, [&] {
        for (std::size_t i = 0; i < batch; i += 50)
            turn(where);
    });
    stream.run_ready();
    return each;
}

double pop_push(const length& l) {
    return in_pool(l, [](fifo_pool& where) {
        for (int i = 0; i < 50; ++i)
            where.push(*where.pop());
    });
}

double pop_push_many(const length& l) {
    return in_pool(l, [](fifo_pool& where) {
        std::array<work_unit*, 50> units{};
        where.push_many(std::span(units.data(), where.pop_many(units)));
    });
}

double yield(const length& l) {
    const auto turn = [](ult&) { this_task::yield(); };
    return beside(l, turn, turn);
}

/// The same with a hook that counts.
double yield_with_hook(const length& l) {
    std::uint64_t events = 0;
    const task_hook hook([&](const task_event_info&) { ++events; });
    const double each = yield(l);
    return events == 0 ? -1 : each;
}

/// A loop of 64 iterations in chunks of one, or in one chunk.
double loop_of_chunks(const length& l) {
    return alone(l, [](execution_stream& stream) {
        parallel_for(parallel_streams(stream.main_pool(), 1), 0, 64,
                     [](int i) { asm volatile("" ::"r"(i)); }, {.how = partition::dynamic});
    });
}
double loop_of_one_chunk(const length& l) {
    return alone(l, [](execution_stream& stream) {
        parallel_for(parallel_streams(stream.main_pool(), 1), 0, 64,
                     [](int i) { asm volatile("" ::"r"(i)); }, {.grain = 64});
    });
}

/// A task of a chain: added, and run.
double graph_task(const length& l) {
    execution_stream stream({.driven = true});
    double each = 0;
    ult mine = spawn(stream, [&] {
        task_graph graph(parallel_streams(stream.main_pool(), 1));
        int value = 0;
        each = l.nanoseconds_each(batch, [&] {
            for (std::size_t i = 0; i < batch; ++i)
                graph.add({graph.inout(value)}, [&value] { ++value; });
            graph.wait();
        });
    });
    while (stream.run_ready() != 0)
        continue;
    mine.join();
    return each;
}

constexpr bench::question questions[] = {
    {"spawn-join", spawn_join},
    {"spawn_to-join", spawn_to_join},
    {"revive", revive},
    {"tasklet-join", tasklet_join},
    {"revive-tasklet", revive_tasklet},
    {"suspend-resume", suspend_resume},
    {"yield_to", yield_to},
    {"suspend_to", suspend_to},
    {"migrate", migrate},
    {"id-and-state", id_and_state},
    {"lock-with-priority", lock_with_priority},
    {"unlock_and_yield", unlock_and_yield},
    {"two-futures", futures_alone},
    {"two-futures-wait_any", futures_wait_any},
    {"two-futures-wait_all", futures_wait_all},
    {"pop-push", pop_push},
    {"pop-push-many", pop_push_many},
    {"loop-of-64-chunks", loop_of_chunks},
    {"loop-of-one-chunk", loop_of_one_chunk},
    {"graph-task", graph_task},
    {"yield", yield},
    {"yield-with-hook", yield_with_hook},
};

}  // namespace

int main(int argc, char** argv) {
    return bench::answer_one(argc, argv, questions);
}
