// Costs of the rarer operations on work units: handing over by name, suspending, reviving, moving,
// asking, waiting for several. All on one driven stream, so that instructions can be counted:
//   count_instructions bench_task_features QUESTION
//   task_features QUESTION [SECONDS|OPERATIONSx]
#include "task_features.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <vector>

#include <amalgam/tasks.hpp>

namespace {

using namespace amalgam;
using bench::alone;
using bench::batch;
using bench::beside;
using bench::length;
using std::chrono_literals::operator""h;

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

double exit_to(const length& l) {
    return alone(l, [](execution_stream& stream) {
        ult next = spawn(stream, [] {});
        ult first = spawn(stream, [&] { this_task::exit_to(next); });
        first.join();
        next.join();
    });
}

/// To compare with exit_to.
double exit(const length& l) {
    return alone(l, [](execution_stream& stream) {
        ult next = spawn(stream, [] {});
        ult first = spawn(stream, [] { this_task::exit(); });
        first.join();
        next.join();
    });
}

double resume_and_yield_to(const length& l) {
    return beside(
        l, [](ult&) { this_task::suspend(); },
        [](ult& partner) { this_task::resume_and_yield_to(partner.ref()); });
}

double try_join(const length& l) {
    return alone(l, [](execution_stream& stream) {
        ult ended = spawn(stream, [] {});
        while (!ended.try_join())
            this_task::yield();
    });
}

double join_for(const length& l) {
    return alone(l, [](execution_stream& stream) { spawn(stream, [] {}).join_for(1h); });
}

double own_stack(const length& l) {
    std::vector<std::byte> memory(std::size_t{64} << 10);
    return alone(l,
                 [&](execution_stream& stream) { spawn(stream, [] {}, {.stack = memory}).join(); });
}

/// Joins what was canceled, which throws.
template <typename Unit>
void join_canceled(Unit& never) {
    try {
        never.join();
    } catch (const error&) {
    }
}

/// To compare.
double exception(const length& l) {
    return alone(l, [](execution_stream&) {
        try {
            throw error(errc::canceled, "a sentence of more than fifteen letters");
        } catch (const error&) {
        }
    });
}

double cancel_unbegun(const length& l) {
    return alone(l, [](execution_stream& stream) {
        ult never = spawn(stream, [] {});
        never.cancel();
        join_canceled(never);
    });
}

double cancel_suspended(const length& l) {
    return beside(
        l,
        [](ult&) {
            try {
                this_task::suspend();
            } catch (const error&) {
            }
        },
        [](ult& partner) {
            partner.cancel();
            this_task::yield();
        });
}

double cancel_tasklet(const length& l) {
    return alone(l, [](execution_stream& stream) {
        tasklet never = spawn_tasklet(stream, [] {});
        never.cancel();
        join_canceled(never);
    });
}

double local_of_another(const length& l) {
    ult_local<int> number;
    return beside(
        l, [](ult&) { this_task::suspend(); }, [&](ult& partner) { ++number.get_of(partner); });
}

/// To the pool of another stream and back, per move.
double move(const length& l, const std::function<void()>& told) {
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
    mine.on_migrate(told);
    while (stream.run_ready() + there.run_ready() != 0)
        continue;
    mine.join();
    return each;
}

double migrate(const length& l) {
    return move(l, {});
}

double migrate_told(const length& l) {
    std::uint64_t moves = 0;
    const double each = move(l, [&] { ++moves; });
    return moves == 0 ? -1 : each;
}

/// Asks one that is suspended, and so does not go yet.
template <typename Ask>
double ask_to_move(const length& l, Ask ask) {
    execution_stream there;
    return beside(
        l, [](ult&) { this_task::suspend(); }, [&](ult& partner) { ask(partner, there); });
}

double ask_to_migrate(const length& l) {
    return ask_to_move(l, [](ult& who, execution_stream& there) { who.migrate(there); });
}

double ask_to_migrate_anywhere(const length& l) {
    return ask_to_move(l, [](ult& who, execution_stream&) { who.migrate(); });
}

double post_yield(const length& l) {
    return alone(l, [](execution_stream& stream) {
        post(stream, [] {});
        this_task::yield();
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
    {"migrate-told", migrate_told},
    {"ask-to-migrate", ask_to_migrate},
    {"ask-to-migrate-anywhere", ask_to_migrate_anywhere},
    {"exit", exit},
    {"exit_to", exit_to},
    {"resume_and_yield_to", resume_and_yield_to},
    {"try_join", try_join},
    {"join_for", join_for},
    {"own-stack", own_stack},
    {"exception", exception},
    {"cancel-unbegun", cancel_unbegun},
    {"cancel-suspended", cancel_suspended},
    {"cancel-tasklet", cancel_tasklet},
    {"local-of-another", local_of_another},
    {"post-yield", post_yield},
    {"id-and-state", id_and_state},
    {"loop-of-64-chunks", loop_of_chunks},
    {"loop-of-one-chunk", loop_of_one_chunk},
    {"graph-task", graph_task},
    {"yield", yield},
    {"yield-with-hook", yield_with_hook},
};

}  // namespace

int main(int argc, char** argv) {
    std::vector<bench::question> all(std::begin(questions), std::end(questions));
    for (const auto& more : {bench::questions_of_waits(), bench::questions_of_streams()})
        all.insert(all.end(), more.begin(), more.end());
    return bench::answer_one(argc, argv, all);
}
